package lifecyclecmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/action/migrate"
	"github.com/virtkit/virtkit/pkg/client/action/wait"
	"github.com/virtkit/virtkit/pkg/client/cli"
	account "github.com/virtkit/virtkit/pkg/report/progress"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
)

// deleted returns the UID of the VM that was to be deleted; empty where it is not known.
func (r *request) deleted() types.UID {
	if r.target.UID == "" && r.before.vm != nil {
		return r.before.vm.UID
	}
	return r.target.UID
}

// going reports whether there is something to wait for.
func (r *request) going() bool { return r.err == nil && (r.accepted || r.underWay) }

// wait waits for all requests that were accepted, or had been before, at once.
func (o *Options) wait(ctx context.Context, c *client.Client, requests []*request) []error {
	ctx, cancel := o.Timeout.Limit(ctx)
	defer cancel()
	failures := make([]error, len(requests))
	progress := newProgress(o.Factory.IO)
	progress.alone = len(requests) == 1
	var group sync.WaitGroup
	var names []string
	for i, r := range requests {
		if r.going() {
			names = append(names, o.name(r.target))
			group.Go(func() { failures[i] = o.waitOne(ctx, c, r, progress) })
		}
	}
	if o.Verb == lifecycle.Migrate { // reports its steps
		group.Wait()
		o.Factory.IO.Status("")
	} else {
		_ = o.Factory.IO.While(fmt.Sprintf("%s: waiting for %s", o.Verb, strings.Join(names, ", ")), func() error {
			group.Wait()
			return nil
		})
	}
	var errs []error
	for i, err := range failures {
		if err == nil && requests[i].going() {
			err = o.reached(requests[i])
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
	}
	return errs
}

// reached prints what was waited for, unless objects are printed.
func (o *Options) reached(r *request) error {
	text := lifecycle.Reached(o.Verb, r.target, r.guest)
	if o.Output.Given() || text == "" {
		return nil
	}
	if o.undoes != "" {
		text += fmt.Sprintf(", and %q is undone", o.called(o.undoes))
	}
	for i := range r.left {
		text += "\n" + r.left[i].Becomes(o.Factory.InNamespace(r.target.Namespace))
	}
	_, err := fmt.Fprintln(o.Factory.IO.Out, text)
	return err
}

func (o *Options) waitOne(ctx context.Context, c *client.Client, r *request, progress *progress) error {
	if o.Verb == lifecycle.Migrate {
		var unwritten error
		m, err := lifecycle.Follow(ctx, c, r.target.Namespace, r.migration,
			func(m *v1.VirtualMachineInstanceMigration) {
				if o.Output.Format == cli.FormatLines && unwritten == nil {
					unwritten = progress.write(func() error { return o.Output.Print(m, o.Factory.IO.Out) })
				}
				progress.say(o.name(r.target), lifecycle.Progress(m))
				if p := migrate.Progress(m); p != nil && !m.IsFinal() {
					progress.show(o.name(r.target), p)
				}
			})
		if o.Output.Format == cli.FormatLines {
			r.object = nil // its last state has a line
		} else if m != nil {
			r.object = m
		}
		if m != nil && m.Status.MigrationState != nil {
			r.guest.Node = m.Status.MigrationState.TargetNode
		}
		if err == nil && !o.Output.Given() {
			r.guest.Paused = paused(ctx, c, r.target)
			r.left = migrate.LeftBy(ctx, c, m)
		}
		return errors.Join(err, unwritten)
	}
	state, err := o.done(ctx, c, r)
	if state.VMI != nil {
		r.guest = lifecycle.Guest{
			Node: state.VMI.Status.NodeName, Paused: stands(state.VMI), Fresh: o.Verb == lifecycle.Start && o.Paused,
			Again: migrations.UnderWay(state.VMI),
		}
		if state.VMI.IsFinal() {
			r.guest.Node = "" // where it was
		}
	}
	switch {
	case o.Verb == lifecycle.Delete: // printed as it was
	case (r.target.Instance || o.Verb.OnInstance()) && state.VMI != nil:
		r.object = state.VMI
	case state.VM != nil:
		r.object = state.VM
	}
	if err != nil {
		r.object = nil
	}
	return err
}

// done waits until a verb that was accepted is done.
func (o *Options) done(ctx context.Context, c *client.Client, r *request) (wait.State, error) {
	if r.cancelled != nil {
		return r.cancelled.Wait(ctx, c)
	}
	condition, _ := lifecycle.Until(o.Verb, r.before.instance(), o.Paused)
	switch {
	case o.Verb == lifecycle.Delete && r.target.Instance:
		condition = lifecycle.UntilInstanceGone(r.before.instance())
	case o.Verb == lifecycle.Delete:
		condition = lifecycle.UntilGone(r.deleted(), r.before.instance())
	}
	return wait.Until(ctx, c, r.target.Namespace, r.target.Name, condition)
}

// paused reports whether the guest of a machine is paused. A user who may move it may also look at it; without an
// answer it is taken to run.
func paused(ctx context.Context, c *client.Client, t lifecycle.Target) bool {
	vmi, err := c.VMI(ctx, t.Namespace, t.Name)
	return err == nil && stands(vmi)
}

func stands(vmi *v1.VirtualMachineInstance) bool {
	return conditions.True(vmi.Status.Conditions, v1.VirtualMachineInstancePaused)
}

// progress shows on a terminal how far migrations are, a line for each step.
type progress struct {
	io *cli.IOStreams

	// alone is whether there is one migration, which has a bar.
	alone bool

	mu   sync.Mutex
	last map[string]string
}

func newProgress(io *cli.IOStreams) *progress {
	return &progress{io: io, last: map[string]string{}}
}

// show draws a bar.
func (p *progress) show(name string, at *account.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.io.ErrIsTTY || !p.alone {
		return
	}
	p.io.Status(bar(name, at, p.io.Width()))
}

// write lets one of those that report at the same time write to standard output.
func (p *progress) write(write func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.io.Status("")
	return write()
}

func (p *progress) say(name, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.io.ErrIsTTY || p.last[name] == text {
		return
	}
	p.last[name] = text
	p.io.Status("")
	fmt.Fprintf(p.io.ErrOut, "%s: %s\n", name, text)
}
