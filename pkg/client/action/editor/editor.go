// Package editor hands text to the user's editor and takes it back. The dashboard, which has the terminal itself, uses
// only its files.
package editor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"
)

// maxText bounds what an editor may leave, bytes.
const maxText = 4 << 20

// Command returns the command line of the user's editor, chosen as kubectl does. One with quotes is the shell's to take
// apart, but in Windows, where \ is of paths.
func Command(env func(string) string) []string {
	for _, name := range []string{"KUBE_EDITOR", "VISUAL", "EDITOR"} {
		line := strings.TrimSpace(env(name))
		switch {
		case line == "":
			continue
		case runtime.GOOS != "windows" && strings.ContainsAny(line, `"'\`):
			return []string{"/bin/sh", "-c", line + ` "$1"`, line}
		}
		return strings.Fields(line)
	}
	return []string{"vi"}
}

// Editor opens texts in an editor, which has the streams meanwhile.
type Editor struct {
	// Command is its command line, to which a file is added.
	Command     []string
	In          io.Reader
	Out, ErrOut io.Writer
}

// Edit opens a text in a file that nobody else can read, waits until the editor has ended, and returns what it left.
func (e Editor) Edit(ctx context.Context, text string) (string, error) {
	name, err := Keep(text)
	if err != nil {
		return "", err
	}
	//nolint:gosec // the user's own editor
	command := exec.CommandContext(ctx, e.Command[0], append(e.Command[1:len(e.Command):len(e.Command)], name)...)
	command.Stdin, command.Stdout, command.Stderr = e.In, e.Out, e.ErrOut
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = patience
	settle := RememberTerminal(e.In)
	err = command.Run()
	settle()
	if err != nil {
		program := e.Command[0]
		if program == "/bin/sh" { // its own name for the script is the editor's command line
			program = e.Command[len(e.Command)-1]
		}
		err = fmt.Errorf("editor %s: %w; KUBE_EDITOR and EDITOR choose another", program, err)
	}
	return Take(name, text, err)
}

// patience is how long an editor may take to end, once it is asked to.
const patience = 5 * time.Second

// RememberTerminal returns a function that makes the terminal, if in is one, what it is now. An editor that is ended by
// a signal may leave it as it was for the editor: without echo, and without lines.
func RememberTerminal(in io.Reader) (settle func()) {
	file, ok := in.(*os.File)
	if !ok {
		return func() {}
	}
	state, err := term.GetState(int(file.Fd()))
	if err != nil {
		return func() {} // it is no terminal
	}
	return func() { _ = term.Restore(int(file.Fd()), state) } // fails only when it is gone
}

// KeptError is an editor's that has failed, or was ended, after it had written something else.
type KeptError struct {
	// Name is the file that has what it wrote.
	Name string
	err  error
}

func (e *KeptError) Error() string { return e.err.Error() + "; your text is in " + e.Name }

func (e *KeptError) Unwrap() error { return e.err }

// Take returns the text that an editor left in a file that had text, and removes the file. err is how the editor
// failed, nil if it did not: then what it has written stays in the file, and the error is a KeptError.
func Take(name, text string, err error) (string, error) {
	left, readErr := Read(name)
	if err != nil && readErr == nil && left != text {
		return left, &KeptError{Name: name, err: err}
	}
	if removed := os.Remove(name); !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	return left, errors.Join(err, readErr)
}

// Read returns the text that an editor left in a file.
func Read(name string) (string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", fmt.Errorf("read what the editor left: %w", err)
	}
	if info.Size() > maxText {
		return "", fmt.Errorf("the text has more than %d MiB", maxText>>20)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("read what the editor left: %w", err)
	}
	return string(data), nil
}

// Keep writes a text to a new file that nobody else can read, and returns its name.
func Keep(text string) (string, error) {
	file, err := os.CreateTemp("", "virtctl-edit-*.yaml")
	if err != nil {
		return "", fmt.Errorf("make a file for the editor: %w", err)
	}
	_, err = file.WriteString(text)
	if err = errors.Join(err, file.Close()); err != nil {
		return "", errors.Join(fmt.Errorf("write the editor's file: %w", err), os.Remove(file.Name()))
	}
	return file.Name(), nil
}

// Uncommented returns a text without the comment lines that it begins with.
func Uncommented(text string) string {
	for strings.HasPrefix(text, "#") {
		_, rest, _ := strings.Cut(text, "\n")
		text = rest
	}
	return text
}
