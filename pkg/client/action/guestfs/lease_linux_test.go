package guestfs

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestLease runs the first process of the pod in a PID namespace of its own: it ends with the lease, at SIGTERM, and
// when the lease is silent, and ends whatever runs beside it.
func TestLease(t *testing.T) {
	for name, end := range map[string]func(in io.Closer, first *os.Process) error{
		"the lease ends":   func(in io.Closer, _ *os.Process) error { return in.Close() },
		"it is terminated": func(_ io.Closer, first *os.Process) error { return first.Signal(syscall.SIGTERM) },
		"it is silent":     func(io.Closer, *os.Process) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			program := strings.Replace(lease, "patience="+leasePatience, "patience=2", 1)
			cmd := exec.CommandContext(ctx, "bash", "-c", `sleep 4321 & exec bash -c "$0"`, program)
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
			if err := end(in, cmd.Process); err != nil {
				t.Fatal(err)
			}
			// Standard output ends with the last process that has it.
			if _, err := io.Copy(io.Discard, out); err != nil {
				t.Error(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v, %v", err, ctx.Err())
			}
		})
	}
}
