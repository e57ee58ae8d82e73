package evacuate

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/action/migrate"
	"github.com/virtkit/virtkit/pkg/client/action/outage"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

const (
	// parallel is how many evictions are asked for at once.
	parallel = 16
	// retry is how long after an eviction that was denied it is asked for again, as kubectl drain does.
	retry = 5 * time.Second
)

// Options say how to evacuate.
type Options struct {
	// NoCordon lets the scheduler go on placing VMs on the node.
	NoCordon bool
	// DryRun has the server check the evictions and change nothing.
	DryRun bool
	// Wait follows until every guest that is to go has gone. How long is the context's to say.
	Wait bool
	// Interval is how often to look; a second unless set.
	Interval time.Duration
	Now      func() time.Time
	// Notify, which may be nil, is called with the report whenever it has changed.
	Notify func(*Report)
}

// Run carries a plan out and returns the report of it, which is never nil. The error says how many guests are left on
// the node that should not be; it is an action.ErrTimeout when the context's time was up.
func Run(ctx context.Context, api API, planned *Report, o Options) (*Report, error) {
	r := planned.DeepCopyObject().(*Report)
	r.Planned = false
	if o.Interval == 0 {
		o.Interval = time.Second
	}
	if !o.NoCordon && !o.DryRun && !r.Cordoned {
		if err := api.Cordon(ctx, r.Node, true); err != nil {
			return r, fmt.Errorf("cordon node %s: %w", r.Node, err)
		}
		r.Cordoned = true
	}
	e := &evacuation{
		api: api, o: o, report: r, last: make([]time.Time, len(r.Guests)),
		denied: make([]error, len(r.Guests)),
	}
	if err := e.evict(ctx); err != nil {
		return r, e.late(ctx, err)
	}
	e.notify()
	if o.Wait && !o.DryRun {
		if err := e.follow(ctx); err != nil {
			return r, err
		}
	}
	return r, e.verdict()
}

// evacuation is one under way.
type evacuation struct {
	api    API
	o      Options
	report *Report
	// last is when each guest's eviction was asked for, and denied the answer, nil when it was granted.
	last   []time.Time
	denied []error
}

func (e *evacuation) notify() {
	if e.o.Notify != nil {
		e.o.Notify(e.report)
	}
}

// leaves reports whether a guest is expected to go.
func leaves(g *Guest) bool { return g.Outcome != Stays && g.Outcome != Marked }

// over reports whether there is nothing more to do about a guest.
func over(g *Guest) bool { return g.State == Left || g.State == Stopped || g.State == Refused }

// evict asks for the evictions that are due: at first all, later those that were denied and did not mark the guest.
func (e *evacuation) evict(ctx context.Context) error {
	var work sync.WaitGroup
	turns := make(chan struct{}, parallel)
	for i := range e.report.Guests {
		g := &e.report.Guests[i]
		if g.pod == "" || over(g) || !e.last[i].IsZero() && (e.denied[i] == nil || e.o.Now().Sub(e.last[i]) < retry) {
			continue
		}
		e.last[i] = e.o.Now()
		turns <- struct{}{}
		work.Go(func() {
			defer func() { <-turns }()
			e.denied[i] = e.one(ctx, g)
		})
	}
	work.Wait()
	return ctx.Err()
}

// one asks for one eviction, and gives the answer when that is not the end of the matter.
func (e *evacuation) one(ctx context.Context, g *Guest) error {
	err := e.ask(ctx, g)
	if g.Reason == notKnown {
		g.Reason = ""
	}
	var gone *lifecycle.GoneError
	switch {
	case err == nil, apierrors.IsNotFound(err):
		g.State = Asked
		return nil
	case apierrors.IsTooManyRequests(err):
		g.State = Asked
		if g.Outcome == Stays {
			g.State = Refused
		}
		return err
	case !errors.As(err, &gone) && (ctx.Err() != nil || client.Unanswered(err)):
		g.State, g.Reason = Asked, notKnown
		return err
	}
	g.State, g.Reason = Refused, err.Error()
	return nil
}

// ask evicts a guest's pod, or makes the migration that brings its disks.
func (e *evacuation) ask(ctx context.Context, g *Guest) error {
	if !g.bring {
		return e.api.Evict(ctx, g.Namespace, g.pod, e.o.DryRun)
	}
	if g.migration != "" {
		return nil
	}
	// A migration names its guest, and no UID: another of its name stays.
	if now, err := e.api.VMI(ctx, g.Namespace, g.Name); err == nil && now.UID != g.vmi.UID {
		return &lifecycle.GoneError{Another: true}
	}
	made := &v1.VirtualMachineInstanceMigration{}
	err := e.api.CreateTyped(ctx, "/apis/"+v1.GroupVersion.String(), client.Migrations,
		migrate.WithDisks(g.Namespace, g.Name, "virtkit-evacuate-with-disks-", nil), made, e.o.DryRun)
	if err == nil && !e.o.DryRun {
		g.migration = made.Name
	}
	return err
}

// move returns the migration that was made to bring a guest's disks; nil when none was, or it is gone.
func (e *evacuation) move(ctx context.Context, g *Guest) (*v1.VirtualMachineInstanceMigration, error) {
	if g.migration == "" {
		return nil, nil
	}
	var m v1.VirtualMachineInstanceMigration
	at := path.Join("/apis", v1.GroupVersion.String(), "namespaces", g.Namespace, client.Migrations, g.migration)
	err := e.api.Read(ctx, at, nil, &m)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get migration %s/%s: %w", g.Namespace, g.migration, err)
	}
	return &m, nil
}

// brought looks at the migration that brings a guest's disks: none follows it when it fails.
func (e *evacuation) brought(ctx context.Context, g *Guest) error {
	switch m, err := e.move(ctx, g); {
	case err != nil:
		return err
	case g.migration == "":
	case m == nil:
		g.State, g.Reason = Refused, "its migration "+g.migration+" was cancelled"
	case m.Status.Phase == v1.MigrationFailed:
		g.State, g.Reason = Refused, "its migration "+g.migration+" failed"
		if ms := m.Status.MigrationState; ms != nil && ms.FailureReason != "" {
			g.Reason += ": " + ms.FailureReason
		}
	}
	return nil
}

// notKnown is the reason of a guest whose eviction was asked for without an answer.
const notKnown = "whether its eviction was granted is not known"

// follow looks until all that is to go has gone.
func (e *evacuation) follow(ctx context.Context) error {
	tick := time.NewTicker(e.o.Interval)
	defer tick.Stop()
	out := outage.Follow(ctx)
	defer out.End()
	for {
		switch err := e.look(ctx); {
		case err != nil && (ctx.Err() != nil || !client.Passing(err)):
			return e.late(ctx, err)
		case err != nil:
			out.Lost(ctx, err)
		default:
			out.Answered()
		}
		if !slices.ContainsFunc(e.report.Guests, func(g Guest) bool { return leaves(&g) && !over(&g) }) {
			return nil
		}
		select {
		case <-ctx.Done():
			return e.late(ctx, ctx.Err())
		case <-tick.C:
		}
		if err := e.evict(ctx); err != nil {
			return e.late(ctx, err)
		}
	}
}

// late turns the end of the context's time into what it means.
func (e *evacuation) late(ctx context.Context, err error) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err
	}
	left := 0
	for i := range e.report.Guests {
		if g := &e.report.Guests[i]; leaves(g) && !over(g) {
			left++
		}
	}
	cordoned := ""
	if e.report.Cordoned {
		cordoned = ", and it is cordoned"
	}
	return fmt.Errorf("evacuate node %s: %d guests have not left it yet%s: %w", e.report.Node, left, cordoned,
		action.ErrTimeout)
}

// look sees where the guests are now.
func (e *evacuation) look(ctx context.Context) error {
	here, err := e.api.VMIList(ctx, "", on(e.report.Node))
	if err != nil {
		return fmt.Errorf("list the VirtualMachineInstances of node %s: %w", e.report.Node, err)
	}
	stays := map[string]*v1.VirtualMachineInstance{}
	for i := range here.Items {
		stays[here.Items[i].Namespace+"/"+here.Items[i].Name] = &here.Items[i]
	}
	changed := false
	for i := range e.report.Guests {
		g := &e.report.Guests[i]
		if over(g) {
			continue
		}
		before := *g
		vmi := stays[g.Namespace+"/"+g.Name]
		if vmi == nil || vmi.UID != g.vmi.UID || vmi.IsFinal() || vmi.Status.NodeName != e.report.Node {
			if vmi, err = e.api.VMI(ctx, g.Namespace, g.Name); apierrors.IsNotFound(err) {
				vmi = nil
			} else if err != nil {
				return fmt.Errorf("get VirtualMachineInstance %s/%s: %w", g.Namespace, g.Name, err)
			}
			m, err := e.move(ctx, g)
			if err != nil {
				return err
			}
			if e.gone(g, vmi); m != nil && g.State == Left {
				for _, c := range volumemigration.CopiedBy(m) {
					g.Copied = append(g.Copied, Copied(c))
				}
			}
		} else {
			e.still(g, vmi)
			if err := e.brought(ctx, g); err != nil {
				return err
			}
		}
		changed = changed || before.State != g.State || before.Reason != g.Reason || before.Now != g.Now
	}
	if changed {
		e.notify()
	}
	return nil
}

// gone records that a guest has left the node; vmi is the instance that has its name now, or nil.
func (e *evacuation) gone(g *Guest, vmi *v1.VirtualMachineInstance) {
	switch {
	case vmi != nil && vmi.UID == g.vmi.UID && !vmi.IsFinal() && vmi.Status.NodeName != e.report.Node:
		g.State, g.Now, g.Reason = Left, vmi.Status.NodeName, ""
	case g.Outcome == Restarts && vmi != nil && vmi.UID != g.vmi.UID && vmi.Status.Phase == v1.Running:
		g.State, g.Now, g.Reason = Left, vmi.Status.NodeName, ""
		if g.Now == e.report.Node {
			g.State, g.Reason = Refused, "it was started on the same node again"
		}
	case g.Outcome == Restarts:
		g.State = Moving // it is on its way
	default:
		g.State = Stopped
	}
}

// still records how far a guest is that has not left the node.
func (e *evacuation) still(g *Guest, vmi *v1.VirtualMachineInstance) {
	ms := vmi.Status.MigrationState
	switch {
	case ms == nil || ms.SourceNode != e.report.Node || ms.MigrationUID == migrationUID(g.vmi):
	case migrations.Failed(ms):
		g.State, g.Reason = Asked, "its last migration failed: "+ms.FailureReason
	case !migrations.Succeeded(ms):
		g.State, g.Target, g.Reason = Moving, ms.TargetNode, ""
	}
}

func migrationUID(vmi *v1.VirtualMachineInstance) (uid types.UID) {
	if vmi.Status.MigrationState != nil {
		uid = vmi.Status.MigrationState.MigrationUID
	}
	return uid
}

// verdict returns an error when guests are on the node that the evacuation could not move.
func (e *evacuation) verdict() error {
	stays := 0
	for i := range e.report.Guests {
		if g := &e.report.Guests[i]; g.Outcome == Stays || g.State == Refused {
			stays++
		}
	}
	if stays > 0 {
		return fmt.Errorf("%d of the %d guests of node %s cannot leave it", stays, len(e.report.Guests), e.report.Node)
	}
	return nil
}
