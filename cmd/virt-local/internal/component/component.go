// Package component defines the shape of every part of an instance, and the order in which parts come and go.
package component

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Component is a part of a cluster: a bridge, a process that outlives the command, a goroutine of the control
// plane.
//
//	         ┌──────┐      ┌───────┐      ┌───────┐
//	  Up ──► │ Init │ ───► │ Start │ ───► │ Ready │ ──► next component
//	         └──────┘      └───────┘      └───────┘
//	      prepare, and     begin, or      wait until
//	      clear away what  nothing if     it can be
//	      a crash left     it runs        used
//
//	                       ┌──────┐
//	Down, in reverse ────► │ Stop │  end it and remove its traces
//	                       └──────┘
//
// Each may be called again at any time, in any state that a crash may have left, and then does only what is
// missing. All but Ready return soon; Ready returns early with an error when waiting is in vain.
type Component interface {
	// Name is how people know it: control-plane, node1, network.
	Name() string
	Init(ctx context.Context) error
	Start(ctx context.Context) error
	Ready(ctx context.Context) error
	Stop(ctx context.Context) error
}

// ErrEnded is Ready's error when the process that it waits for has ended.
var ErrEnded = errors.New("its process has ended")

// Stack is components in the order in which they need each other.
type Stack struct {
	Components []Component
	// Report, when set, is called for each component that has become ready, or whose Ready has just begun.
	Report func(name string, ready bool, took time.Duration)
}

// Up brings the components up in order, each ready before the next. On an error it leaves what is up as it
// is, for another try or for Down.
func (s Stack) Up(ctx context.Context) error {
	for _, c := range s.Components {
		if err := s.up(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func (s Stack) up(ctx context.Context, c Component) error {
	begin := time.Now()
	s.report(c, false, 0)
	err := bring(ctx, c)
	if errors.Is(err, ErrEnded) && c.Name() != "" { // a group has tried its own
		// Start found the process running, and left it so, when it was ending: killed a moment before.
		err = bring(ctx, c)
	}
	if err == nil {
		s.report(c, true, time.Since(begin))
	}
	return err
}

func bring(ctx context.Context, c Component) error {
	for _, part := range []struct {
		verb string
		do   func(context.Context) error
	}{{"prepare", c.Init}, {"start", c.Start}, {"wait for", c.Ready}} {
		err := part.do(ctx)
		if err != nil && c.Name() != "" {
			err = fmt.Errorf("%s %s: %w", part.verb, c.Name(), err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s Stack) report(c Component, ready bool, took time.Duration) {
	if s.Report != nil {
		s.Report(c.Name(), ready, took)
	}
}

// Down stops the components in reverse order. It goes on after errors and returns them all.
func (s Stack) Down(ctx context.Context) error {
	var errs []error
	for i := len(s.Components) - 1; i >= 0; i-- {
		if err := s.Components[i].Stop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", s.Components[i].Name(), err))
		}
	}
	return errors.Join(errs...)
}

// Together is components that do not wait for each other: each goes through Init, Start and Ready at its own
// pace, and all stop at once.
type Together struct {
	Components []Component
	Report     func(name string, ready bool, took time.Duration)
}

// Name returns "": the group itself is not shown.
func (Together) Name() string { return "" }

// Init does nothing: it belongs to each component's own sequence, in Ready.
func (Together) Init(context.Context) error { return nil }

// Start does nothing, as Init.
func (Together) Start(context.Context) error { return nil }

// Ready brings all up side by side. The first error ends the wait of the others.
func (t Together) Ready(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	return t.all(func(c Component) error {
		err := Stack{Report: t.Report}.up(ctx, c)
		if err != nil {
			if errors.Is(err, context.Canceled) && !errors.Is(context.Cause(ctx), context.Canceled) {
				return nil // because of another's error, which is the one to report
			}
			cancel(err)
		}
		return err
	})
}

// Stop stops all side by side.
func (t Together) Stop(ctx context.Context) error {
	return t.all(func(c Component) error {
		if err := c.Stop(ctx); err != nil {
			return fmt.Errorf("stop %s: %w", c.Name(), err)
		}
		return nil
	})
}

func (t Together) all(do func(Component) error) error {
	errs := make([]error, len(t.Components))
	var wg sync.WaitGroup
	for i, c := range t.Components {
		wg.Go(func() { errs[i] = do(c) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
