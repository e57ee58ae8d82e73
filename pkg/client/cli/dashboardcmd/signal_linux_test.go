package dashboardcmd

import (
	"context"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

// listening is a model that says when it runs, and answers.
type listening struct {
	begun  chan struct{}
	answer chan struct{}
}

type question struct{}

func (m listening) Init() tea.Cmd { close(m.begun); return nil }

func (m listening) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	if _, ok := msg.(question); ok {
		m.answer <- struct{}{}
	}
	return m, nil
}

func (listening) View() tea.View { return tea.NewView("") }

// TestInterruptIsForOthers interrupts the dashboard as a log does that is followed in its terminal and has just ended:
// the dashboard goes on. Being asked to end ends it.
func TestInterruptIsForOthers(t *testing.T) {
	heard := make(chan os.Signal, 8)
	signal.Notify(heard, os.Interrupt, syscall.SIGTERM) // it must not end the tests
	defer signal.Stop(heard)
	ctx, end := context.WithCancelCause(t.Context())
	defer end(nil)
	m := listening{make(chan struct{}), make(chan struct{}, 1)}
	in, typing := io.Pipe()
	defer typing.Close()
	program := newProgram(ctx, m, in, io.Discard)
	ended := make(chan error, 1)
	var beside sync.WaitGroup
	beside.Go(func() { untilSignal(ctx, end) })
	beside.Go(func() { _, err := program.Run(); ended <- err })
	within(t, m.begun, ended)
	send := func(s syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
		within(t, heard, nil)
	}
	for range 20 {
		send(syscall.SIGINT)
		program.Send(question{})
		within(t, m.answer, ended)
	}
	if ctx.Err() != nil {
		t.Fatal("an interrupt ends the dashboard")
	}
	for ctx.Err() == nil { // it may not listen yet
		send(syscall.SIGTERM)
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	within(t, ended, nil)
	beside.Wait()
	if code := cli.ExitCode(context.Cause(ctx)); code != cli.ExitInterrupted {
		t.Errorf("being asked to end is code %d", code)
	}
}

// within waits for something, which must be there before the program ends.
func within[T any](t *testing.T, c <-chan T, ended <-chan error) {
	t.Helper()
	select {
	case <-c:
	case err := <-ended:
		t.Fatalf("the program has ended: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("nothing came within a minute")
	}
}
