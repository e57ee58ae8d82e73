package dashboardcmd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/outage"
	"github.com/virtkit/virtkit/pkg/client/action/overview"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// states returns the states of the stores that a report is made of.
func states(w *page.World) map[string]store.State {
	return map[string]store.State{
		"machines": w.Machines.State(), "nodes": w.Nodes.State(),
		"migrations": w.Migrations.State(),
	}
}

// settled waits until everything has been read, or cannot be; what cannot is the error, unless it is refused: then the
// rest is of use, and the report names it.
func (s *session) settled(ctx context.Context, w *page.World) (unreadable map[string]string, err error) {
	for {
		unreadable = map[string]string{}
		waiting := false
		for what, state := range states(w) {
			switch {
			case state.Synced:
			case what != "machines" && (apierrors.IsForbidden(state.Err) || apierrors.IsNotFound(state.Err)):
				unreadable[what] = cli.Explain(state.Err, s.options.Factory.Connection())
			case state.Err != nil:
				return nil, fmt.Errorf("read the %s: %w", what, state.Err)
			default:
				waiting = true
			}
		}
		if !waiting {
			return unreadable, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.changes:
		}
	}
}

func report(w *page.World) *overview.Report {
	return overview.Make(w.Context, w.Namespace, w.Machines.Rows(), w.Nodes.Rows(), w.Migrations.Rows())
}

// once prints how things are.
func (s *session) once(ctx context.Context, w *page.World) error {
	unreadable, err := s.settled(ctx, w)
	if err != nil {
		return err
	}
	r := report(w)
	r.Unreadable = unreadable
	o := s.options
	if o.Output.Given() {
		return o.Output.Print(r, o.Factory.IO.Out)
	}
	if w.Namespace != "" && len(r.Machines) == 0 {
		fmt.Fprintf(o.Factory.IO.ErrOut, "No virtual machines found in namespace %s.\n", w.Namespace)
	}
	out := cli.NewTable(o.Factory.IO.Out)
	for _, row := range overview.Rows(r) {
		out.Row(row...)
	}
	s.warn(unreadable)
	return out.Flush()
}

// warn says what is left out of what is printed, since it cannot be read.
func (s *session) warn(unreadable map[string]string) {
	for _, what := range slices.Sorted(maps.Keys(unreadable)) {
		fmt.Fprintf(s.options.Factory.IO.ErrOut, "warning: the %s are missing: %s\n", what, unreadable[what])
	}
}

// plain prints each change as a line, first what there is, until interrupted.
func (s *session) plain(ctx context.Context, w *page.World) error {
	out := s.options.Factory.IO
	unreadable, err := s.settled(ctx, w)
	if err != nil {
		return err
	}
	s.warn(unreadable)
	var before *overview.Report
	link := outage.Follow(s.options.Factory.ReportOutages(ctx))
	for {
		now := report(w)
		for _, line := range overview.Changes(before, now) {
			if _, err := fmt.Fprintf(out.Out, "%s %s\n", s.options.Factory.Now().
				Format(time.TimeOnly), widget.Harmless(line)); err != nil {
				return err
			}
		}
		before = now
		state := w.Machines.State()
		if state.Stale() {
			link.Lost(ctx, state.Err)
		} else {
			link.Answered()
		}
		if err := action.Sleep(ctx, frame); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.changes:
		}
	}
}
