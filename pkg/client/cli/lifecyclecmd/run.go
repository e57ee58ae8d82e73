package lifecyclecmd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/action/migrate"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// parallel is how many machines are asked at once: enough to hide the round trips, and no burden for the server.
const parallel = 16

// request is the verb asked of one machine.
type request struct {
	target lifecycle.Target
	// sent is whether the server may have got it, accepted whether it has said so.
	sent, accepted bool
	// underWay is whether what was asked for is being done already, so that there is nothing to ask for but to wait.
	underWay bool
	// before is what was there, nil where there was nothing or nobody needs to know.
	before before
	// migration is the one that Migrate made.
	migration string
	// cancelled is what MigrateCancel cancelled.
	cancelled *lifecycle.Cancelled
	// guest is as it is after the wait, and left are the claims that it has left behind.
	guest lifecycle.Guest
	left  []migrate.Left
	// object is what -o prints.
	object runtime.Object
	err    error
	// done is closed when the request is over.
	done chan struct{}
}

// before is a machine as it was.
type before struct {
	vm  *v1.VirtualMachine
	vmi *v1.VirtualMachineInstance
}

func (b before) instance() types.UID {
	if b.vmi == nil {
		return ""
	}
	return b.vmi.UID
}

// Run asks for the verb, a bounded number of machines at once, reports each in the order given, and with --wait waits
// for all of them at once. It goes on after a failure and returns all errors.
func Run(ctx context.Context, o *Options) error {
	if o.Plan {
		c, err := o.Factory.Client()
		if err != nil {
			return err
		}
		return o.runPlan(ctx, c)
	}
	targets, err := o.targets(ctx)
	if err != nil {
		return err
	}
	if o.DryRun == cli.DryRunClient && !o.Output.Given() {
		for _, t := range targets {
			if err := o.report(newRequest(t)); err != nil {
				return err
			}
		}
		return nil
	}
	c, err := o.Factory.Client()
	if err != nil {
		return err
	}
	if err := o.checkTo(ctx, c); err != nil {
		return err
	}
	requests := make([]*request, len(targets))
	for i, t := range targets {
		requests[i] = newRequest(t)
	}
	return o.carryOut(ctx, c, requests, nil, "")
}

// checkTo looks whether the node of --to is there. The server would take the name of one that is not, and the migration
// wait for it. Who may not read nodes is not asked about them.
func (o *Options) checkTo(ctx context.Context, c *client.Client) error {
	if o.To == "" {
		return nil
	}
	var node metav1.PartialObjectMetadata
	switch err := c.Read(ctx, "/api/v1/nodes/"+url.PathEscape(o.To), nil, &node); {
	case apierrors.IsNotFound(err):
		return &because{fmt.Sprintf("--to: nodes %q not found", o.To), err}
	case err != nil && !apierrors.IsForbidden(err):
		return fmt.Errorf("look at node %s: %w", o.To, err)
	}
	return nil
}

func newRequest(t lifecycle.Target) *request {
	return &request{target: t, done: make(chan struct{})}
}

// carryOut sends the requests and sees them through; errs are failures from before. undoes is the entry of the journal
// that they take back, if any.
func (o *Options) carryOut(
	ctx context.Context, c *client.Client, requests []*request, errs []error, undoes string,
) error {
	errs = append(errs, o.ask(ctx, c, requests)...)
	o.record(requests, undoes)
	if o.Wait && ctx.Err() == nil {
		errs = append(errs, o.wait(ctx, c, requests)...)
	}
	if o.Output.Given() {
		if err := o.print(requests); err != nil {
			errs = append(errs, err)
		}
	}
	if ctx.Err() != nil {
		o.printInterrupted(requests)
		return ctx.Err()
	}
	return cli.Joined(errs...)
}

// ask sends the requests, and reports each as soon as it and those before it are over.
func (o *Options) ask(ctx context.Context, c *client.Client, requests []*request) []error {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() {
		each(requests, func(r *request) bool {
			defer close(r.done)
			if r.err = ctx.Err(); r.err == nil {
				r.err = o.one(ctx, c, r)
			}
			return true
		})
	})
	var errs []error
	for _, r := range requests {
		<-r.done
		err := r.err
		if err == nil && !o.Output.Given() {
			err = o.report(r)
		}
		o.note(r)
		if err != nil && !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
	}
	return errs
}

// each hands the requests to do in their order, at most parallel at once, and none more once do has returned false. It
// returns when all that were handed on are over.
func each(requests []*request, do func(*request) bool) {
	var workers sync.WaitGroup
	defer workers.Wait()
	var enough atomic.Bool
	room := make(chan struct{}, parallel)
	for _, r := range requests {
		room <- struct{}{}
		if enough.Load() {
			return
		}
		workers.Go(func() {
			defer func() { <-room }()
			if !do(r) {
				enough.Store(true)
			}
		})
	}
}

// one asks one machine.
func (o *Options) one(ctx context.Context, c *client.Client, r *request) error {
	if err := o.look(ctx, c, r); err != nil {
		return err
	}
	if o.To != "" {
		vmi, err := c.VMI(ctx, r.target.Namespace, r.target.Name)
		if err == nil && vmi.Status.NodeName == o.To {
			return fmt.Errorf("%s %s: it is on node %s already", o.Verb, r.target, o.To)
		}
		if err != nil && !apierrors.IsNotFound(err) { // of one that does not run the server will say so
			return fmt.Errorf("look at instance %s/%s: %w", r.target.Namespace, r.target.Name, err)
		}
	}
	if o.DryRun != cli.DryRunClient {
		r.sent = true
		err := o.send(ctx, c, r)
		if err != nil && o.stopping(ctx, c, r.target, err) {
			r.underWay = true
			return nil
		}
		if err != nil {
			return o.refused(ctx, c, r.target, err)
		}
		r.accepted = true
	}
	if o.Verb == lifecycle.Migrate && o.DryRun == cli.DryRunNone && (o.Wait || o.Output.Given()) {
		m, err := lifecycle.Migration(ctx, c, r.target)
		if err != nil {
			return err
		}
		if m == nil {
			return fmt.Errorf("%s %s: the server has made no migration; is virt-controller of this version?",
				o.Verb, r.target)
		}
		r.migration, r.object = m.Name, m
	}
	if !o.Output.Given() || o.Wait || r.object != nil {
		return nil
	}
	return o.fetch(ctx, c, r)
}

// look notes how the machine is before the request, as far as that is needed afterwards. What cannot be found is the
// server's to complain about.
func (o *Options) look(ctx context.Context, c *client.Client, r *request) error {
	t := r.target
	if o.DryRun == cli.DryRunNone {
		remember(ctx, c, o.Verb, t, &r.before)
	}
	needsVM := o.Verb == lifecycle.Delete && !t.Instance && o.Output.Given()
	needsVMI := o.Wait && (o.Verb == lifecycle.Restart || o.Verb == lifecycle.Delete) ||
		o.Verb == lifecycle.Delete && t.Instance && o.Output.Given()
	if needsVM {
		vm, err := c.VM(ctx, t.Namespace, t.Name)
		if err == nil {
			r.before.vm, r.object = vm, vm
		} else if !apierrors.IsNotFound(err) {
			return fmt.Errorf("look at VM %s/%s: %w", t.Namespace, t.Name, err)
		}
	}
	if needsVMI {
		vmi, err := c.VMI(ctx, t.Namespace, t.Name)
		if err == nil {
			r.before.vmi = vmi
			if o.Verb == lifecycle.Delete && t.Instance {
				r.object = vmi
			}
		} else if !apierrors.IsNotFound(err) {
			return fmt.Errorf("look at instance %s/%s: %w", t.Namespace, t.Name, err)
		}
	}
	return nil
}

// fetch reads what -o prints: the machine that was asked.
func (o *Options) fetch(ctx context.Context, c *client.Client, r *request) error {
	t := r.target
	var err error
	switch {
	case t.Instance || o.Verb.OnInstance() || o.Verb == lifecycle.EvacuateCancel:
		r.object, err = c.VMI(ctx, t.Namespace, t.Name)
	default:
		r.object, err = c.VM(ctx, t.Namespace, t.Name)
	}
	if err != nil {
		r.object = nil
		return fmt.Errorf("look at %s: %w", t, err)
	}
	return nil
}

// report prints what KubeVirt's virtctl prints; `undo`, which that does not have, adds what it undoes.
func (o *Options) report(r *request) error {
	if r.underWay {
		_, err := fmt.Fprintf(o.Factory.IO.Out, "VM %s is stopping already\n", r.target.Name)
		return err
	}
	undone := ""
	if o.undoes != "" {
		undone = fmt.Sprintf(", which undoes %q", o.called(o.undoes))
	}
	_, err := fmt.Fprintf(o.Factory.IO.Out, "%s%s%s\n", lifecycle.Done(o.Verb, r.target), undone, o.DryRun.Suffix())
	return err
}

// called returns a verb as the user types it.
func (o *Options) called(verb lifecycle.Verb) string { return o.Factory.Program + " " + string(verb) }

// print writes the objects of the requests that went well.
func (o *Options) print(requests []*request) error {
	var objects []runtime.Object
	for _, r := range requests {
		if r.object != nil {
			objects = append(objects, r.object)
		}
	}
	alone := len(requests) == 1 && !o.Selection.Given()
	return o.Output.PrintAll(objects, alone, o.Factory.IO.Out)
}

// printInterrupted prints what was asked and what was not, when the user has interrupted the command.
func (o *Options) printInterrupted(requests []*request) {
	var accepted, unknown, not []lifecycle.Target
	for _, r := range requests {
		switch {
		case r.accepted:
			accepted = append(accepted, r.target)
		case !r.sent:
			not = append(not, r.target)
		case errors.Is(r.err, context.Canceled):
			unknown = append(unknown, r.target)
		}
	}
	streams := o.Factory.IO
	if len(accepted) > 0 {
		streams.Requested(context.Canceled, true, "%s of %s", o.Verb, o.nameAll(accepted))
	}
	if len(unknown) > 0 {
		streams.Requested(context.Canceled, false, "%s of %s", o.Verb, o.nameAll(unknown))
	}
	if len(not) > 0 {
		streams.Interrupted(context.Canceled, "%s of %s was not requested", o.Verb, o.nameAll(not))
	}
}

// named returns a target as the user names it.
func named(t lifecycle.Target) cli.Target {
	return cli.Target{Namespace: t.Namespace, Name: t.Name, Instance: t.Instance}
}
