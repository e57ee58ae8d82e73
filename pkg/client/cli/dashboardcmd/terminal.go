package dashboardcmd

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// untilSignal calls end, with what the exit code says, when the process is asked to end, or its terminal is closed.
// The program then puts the terminal right. An interrupt is a key, or it is for the program that has the terminal,
// which may have ended before the interrupt is seen here: it never ends this one.
func untilSignal(ctx context.Context, end func(error)) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	for {
		select {
		case <-ctx.Done():
			return
		case <-interrupts:
		case <-signals:
			end(context.Canceled)
			return
		}
	}
}

// patience is how long a program that has the terminal may take to end, once it is asked to.
const patience = 5 * time.Second

// commands makes programs that end with ctx.
func commands(ctx context.Context) func(string, ...string) *exec.Cmd {
	return func(name string, args ...string) *exec.Cmd {
		command := exec.CommandContext(ctx, name, args...)
		command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
		command.WaitDelay = patience
		return command
	}
}

// guarded puts the terminal right before a panic of a goroutine ends the program.
func (s *session) guarded(do func()) func() {
	return func() {
		defer func() {
			if p := recover(); p != nil {
				s.release()
				panic(p)
			}
		}()
		do()
	}
}

// release gives the terminal back as it was, as far as that can be done.
func (s *session) release() {
	if program := s.program.Load(); program != nil {
		_ = program.ReleaseTerminal() // the panic is what is to be reported
	}
}
