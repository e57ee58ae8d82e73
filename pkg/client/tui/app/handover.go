package app

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// interrupted is the exit code of a program of ours that the user has interrupted.
const interrupted = 130

// run hands the terminal to a command of ours until that ends.
func (a *App) run(r page.Run) tea.Cmd {
	index := a.logged(a.World.Program + " " + strings.Join(page.Shown(r.Args), " "))
	program := &handed{Cmd: a.Command(a.Self, r.Args...), leave: r.Leave}
	program.Env = append(program.Environ(), action.Handed+"=1")
	return tea.Exec(program, func(err error) tea.Msg { return runEnded{index, err} })
}

// handed is a program that has the terminal. When it fails, what it has said stays until the user has read it.
type handed struct {
	*exec.Cmd
	// leave is said before it begins, if it is not empty.
	leave string
}

func (h *handed) SetStdin(r io.Reader)  { h.Stdin = r }
func (h *handed) SetStdout(w io.Writer) { h.Stdout = w }
func (h *handed) SetStderr(w io.Writer) { h.Stderr = w }

// Run returns how the program ended; nil where the user has ended it.
func (h *handed) Run() error {
	if h.leave != "" {
		fmt.Fprintln(h.Stderr, h.leave)
	}
	err := h.Cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == action.EndedByItself:
		// What the user types was meant for the guest.
		fmt.Fprint(h.Stdout, "Enter goes back to the dashboard. ")
		enter(h.Stdin)
		return nil
	case err == nil, errors.As(err, &exit) && exit.ExitCode() == interrupted:
		return nil
	case errors.As(err, &exit) && !exit.Exited(): // a signal: nobody waits for an answer
		return err
	}
	fmt.Fprintf(h.Stdout, "\n%s. Enter goes back to the dashboard. ", err)
	enter(h.Stdin)
	return err
}

// enter waits for the end of a line.
func enter(in io.Reader) {
	one := make([]byte, 1)
	for one[0] != '\n' {
		if n, err := in.Read(one); n == 0 || err != nil {
			return
		}
	}
}
