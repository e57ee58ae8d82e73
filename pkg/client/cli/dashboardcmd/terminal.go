package dashboardcmd

import (
	"context"
	"fmt"
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

// guarded does what is to be done before a panic of a goroutine ends the program.
func (s *session) guarded(do func()) func() {
	return func() {
		defer func() {
			if p := recover(); p != nil {
				s.crashed()
				panic(p)
			}
		}()
		do()
	}
}

// crashPatience is how long transfers may take to end, and to delete what they have made in the cluster, before a panic
// ends the program.
const crashPatience = time.Minute

// crashed gives the terminal back as it was, as far as that can be done, and cancels the transfers, which leave nothing
// behind them then.
func (s *session) crashed() {
	if program := s.program.Load(); program != nil {
		_ = program.ReleaseTerminal() // the panic is what is to be reported
	}
	stopped := make(chan struct{})
	go func() { // where the panic was may be in the way of it
		defer close(stopped)
		s.endTransfers()
	}()
	select {
	case <-stopped:
	case <-time.After(crashPatience):
	}
}

// endTransfers cancels the transfers, and says so when they have ended.
func (s *session) endTransfers() {
	for _, text := range s.transfers.Stop() {
		fmt.Fprintf(s.options.Factory.IO.ErrOut, "warning: %s\n", text)
	}
}
