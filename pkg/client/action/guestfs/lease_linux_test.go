package guestfs

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// neighbour is what runs beside the pod's first process: it says when it begins, and that it was asked to end.
const neighbour = `trap "" HUP; trap "echo asked; exit" TERM; echo begun; while :; do sleep 0.1; done`

// TestLease runs the first process of the pod in a PID namespace of its own: it ends with the lease, at SIGTERM, and
// when the lease is silent, and asks whatever runs beside it to end.
func TestLease(t *testing.T) {
	for name, end := range map[string]func(in io.Closer, first *os.Process) error{
		"the lease ends":   func(in io.Closer, _ *os.Process) error { return in.Close() },
		"it is terminated": terminate,
		"it is silent":     func(io.Closer, *os.Process) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			program := lease
			if name == "it is silent" {
				program = strings.Replace(lease, "patience="+leasePatience, "patience=2", 1)
			}
			cmd := exec.CommandContext(ctx, "bash", "-c", `bash -c "$1" & exec bash -c "$0"`, program, neighbour)
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
			if os.Geteuid() != 0 {
				cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
			}
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); errors.Is(err, fs.ErrPermission) {
				t.Skip("no PID namespace can be made here")
			} else if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(in, "\n"); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			if !lines.Scan() || lines.Text() != "begun" {
				t.Errorf("the neighbour says %q", lines.Text())
			}
			if err := end(in, cmd.Process); err != nil {
				t.Fatal(err)
			}
			if !lines.Scan() || lines.Text() != "asked" || lines.Scan() {
				t.Errorf("the neighbour says at its end %q", lines.Text())
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v, %v", err, ctx.Err())
			}
		})
	}
}

// terminate sends SIGTERM until the process has ended: the first process of a namespace is not reached by one that
// comes before its trap is set.
func terminate(_ io.Closer, first *os.Process) error {
	go func() {
		for first.Signal(syscall.SIGTERM) == nil {
			time.Sleep(100 * time.Millisecond)
		}
	}()
	return nil
}

// TestNote runs programs as in the pod: their exit codes are bash's, and are noted once they have ended. Their standard
// error is their own.
func TestNote(t *testing.T) {
	for name, tc := range map[string]struct {
		command []string
		code    int
		note    string
		says    string
	}{
		"it ends well":       {[]string{"cat"}, 0, "0\n", ""},
		"it fails":           {[]string{"bash", "-c", `echo no >&2; exit "$1"`, "x y", "7"}, 7, "7\n", "no\n"},
		"it is killed":       {[]string{"bash", "-c", "kill -SEGV $$"}, 139, "139\n", ""},
		"there is none":      {[]string{"/no/such program"}, 127, "127\n", "/no/such program: No such file"},
		"a word of bash's":   {[]string{"exit", "0"}, 127, "127\n", "not found"},
		"it has not ended":   {[]string{"bash", "-c", "kill -KILL $PPID"}, -1, "\n", ""},
		"its name is a flag": {[]string{"-c"}, 127, "127\n", "not found"},
	} {
		note := filepath.Join(t.TempDir(), "note")
		run := script(noting, append([]string{note}, tc.command...)...)
		var exit *exec.ExitError
		var said strings.Builder
		cmd := exec.CommandContext(t.Context(), run[0], run[1:]...)
		cmd.Stderr = &said
		switch err := cmd.Run(); {
		case err == nil && tc.code == 0:
		case errors.As(err, &exit) && exit.ExitCode() == tc.code:
		default:
			t.Errorf("%s: %v, want exit code %d", name, err, tc.code)
		}
		if got := said.String(); !strings.Contains(got, tc.says) || tc.says == "" && got != "" {
			t.Errorf("%s: standard error has %q, want %q", name, got, tc.says)
		}
		look := script(noted, note)
		if got, err := exec.CommandContext(t.Context(), look[0], look[1:]...).Output(); string(got) != tc.note {
			t.Errorf("%s: the note is %q, %v; want %q", name, got, err, tc.note)
		}
	}
}
