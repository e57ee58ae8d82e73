package lifecyclecmd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/journal"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

func journalOf(f *cli.Factory) (journal.File, error) {
	dir, err := cli.StateDir(f.Getenv)
	return journal.File{Path: filepath.Join(dir, "journal.jsonl")}, err
}

// remember notes what must be known of a machine for its verb to be taken back. Who may not read it cannot
// take it back, which is no reason to refuse the verb.
func remember(ctx context.Context, c *client.Client, verb lifecycle.Verb, t lifecycle.Target, b *before) {
	if verb.OnInstance() || t.Instance {
		if b.vmi == nil {
			if vmi, err := c.VMI(ctx, t.Namespace, t.Name); err == nil {
				b.vmi = vmi
			}
		}
		return
	}
	if b.vm == nil {
		if vm, err := c.VM(ctx, t.Namespace, t.Name); err == nil {
			b.vm = vm
		}
	}
}

// Do asks a verb of machines, one after the other, and writes those that agreed into the journal as one entry, as the
// commands do. One that refuses does not keep the others from it. It returns when all have answered, and of
// MigrateCancel when it is known whether that came too late.
func Do(
	ctx context.Context, f *cli.Factory, c *client.Client, verb lifecycle.Verb, targets ...lifecycle.Target,
) error {
	requests := make([]*request, len(targets))
	for i, t := range targets {
		requests[i] = newRequest(t)
	}
	errs := askAll(ctx, c, verb, requests)
	for i, r := range requests {
		errs[i] = copying(f, r.target, errs[i])
	}
	o := &Options{Factory: f, Verb: verb}
	if err := o.journal(requests, ""); err != nil {
		errs = append(errs, fmt.Errorf("%s was done, and cannot be undone: %w", verb, err))
	}
	cut := func(err error) bool { return err != nil && !unneeded(err) && client.Unanswered(err) }
	if done := accepted(requests); len(targets) > 1 && slices.ContainsFunc(errs, cut) {
		errs = append(errs, fmt.Errorf("%s was done to %d of %d machines", verb, done, len(targets)))
	}
	errs = append(errs, cancelled(ctx, c, requests)...)
	return utilerrors.NewAggregate(errs) // of which each is explained
}

// answerWithin is how long one machine's request may take.
const answerWithin = time.Minute

// askAll asks machines, many at once, and returns the error of each. Once the server has not answered, those that were
// not asked yet are not: each would wait as long.
func askAll(ctx context.Context, c *client.Client, verb lifecycle.Verb, requests []*request) []error {
	each(requests, func(r *request) (answered bool) {
		ctx, cancel := context.WithTimeout(ctx, answerWithin)
		defer cancel()
		remember(ctx, c, verb, r.target, &r.before)
		if verb == lifecycle.MigrateCancel {
			r.cancelled, r.err = lifecycle.Cancel(ctx, c, r.target, lifecycle.Options{})
		} else {
			r.err = lifecycle.Do(ctx, c, verb, r.target, lifecycle.Options{})
		}
		var answer apierrors.APIStatus
		r.accepted = r.err == nil
		return r.accepted || errors.As(r.err, &answer) || unneeded(r.err)
	})
	errs := make([]error, len(requests))
	for i, r := range requests {
		errs[i] = r.err
	}
	return errs
}

// unneeded reports a request that was not made, by what the server has answered before.
func unneeded(err error) bool {
	var copying *lifecycle.CopyingError
	return errors.Is(err, action.ErrNotFound) || errors.As(err, &copying)
}

// cancelled waits for migrations that were cancelled, and returns what was not as it was asked for: they had moved
// their guests, or have not ended yet.
func cancelled(ctx context.Context, c *client.Client, requests []*request) []error {
	errs := make([]error, len(requests))
	var group sync.WaitGroup
	for i, r := range requests {
		if r.cancelled != nil {
			group.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, answerWithin)
				defer cancel()
				_, errs[i] = r.cancelled.Wait(ctx, c)
			})
		}
	}
	group.Wait()
	return errs
}

// accepted returns how many requests the server took.
func accepted(requests []*request) int {
	n := 0
	for _, r := range requests {
		if r.accepted {
			n++
		}
	}
	return n
}

// record writes the requests that were accepted into the journal. undoes is the entry that they take back, if any. It
// is a convenience: where it cannot be written the user reads so, and what was asked stands.
func (o *Options) record(requests []*request, undoes string) {
	if o.DryRun != cli.DryRunNone {
		return
	}
	if err := o.journal(requests, undoes); err != nil && o.Factory.IO.ErrIsTTY {
		fmt.Fprintf(o.Factory.IO.ErrOut, "warning: it cannot be undone: %v\n", err)
	}
}

// Record writes a change of a machine that is no lifecycle verb into the journal.
func Record(f *cli.Factory, verb lifecycle.Verb, t lifecycle.Target) error {
	r := newRequest(t)
	r.accepted = true
	o := &Options{Factory: f, Verb: verb}
	if err := o.journal([]*request{r}, ""); err != nil {
		return fmt.Errorf("%s was done, and undo does not know of it: %w", verb, err)
	}
	return nil
}

// Note records a command's verb as Record does; a failure is a warning, and does not fail the command.
func Note(f *cli.Factory, verb lifecycle.Verb, t lifecycle.Target) {
	if err := Record(f, verb, t); err != nil && f.IO.ErrIsTTY {
		fmt.Fprintf(f.IO.ErrOut, "warning: %v\n", err)
	}
}

func (o *Options) journal(requests []*request, undoes string) error {
	entry := journal.Entry{Verb: o.Verb, Undoes: undoes}
	for _, r := range requests {
		if !r.accepted {
			continue
		}
		m := journal.Machine{
			Namespace: r.target.Namespace, Name: r.target.Name, Instance: r.target.Instance,
			InstanceUID: r.before.instance(),
		}
		if vm := r.before.vm; vm != nil {
			m.UID = vm.UID
			if strategy, err := vm.RunStrategy(); err == nil {
				m.Before = strategy
			}
		}
		entry.Machines = append(entry.Machines, m)
	}
	if len(entry.Machines) == 0 {
		return nil
	}
	return write(o.Factory, &entry)
}
