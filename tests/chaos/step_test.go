//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"time"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// step does one kill and says what came of it. err says that the run cannot go on.
func (r *run) step(ctx context.Context, s Step) (o Outcome, err error) {
	o = Outcome{Step: s}
	if err := r.kill(ctx, s, &o); err != nil {
		o.Stuck = err.Error()
	}
	if err := r.compare(&o); err != nil {
		return o, err
	}
	if o.Failed() {
		r.t.Logf("%+v", o)
		r.describe(ctx)
	}
	if o.Stuck != "" {
		if err := r.rescue(ctx); err != nil {
			return o, fmt.Errorf("the cluster cannot be repaired: %w", err)
		}
	}
	return o, nil
}

// compare looks for what is lost or doubled on the guests' disks.
func (r *run) compare(o *Outcome) error {
	for _, g := range r.vms {
		f, err := r.consoles.check(g.name, g.disk)
		if err != nil {
			return err
		}
		for _, finding := range f.Lost {
			o.Lost = append(o.Lost, g.name+": "+finding)
		}
		for _, finding := range f.Doubled {
			o.Doubled = append(o.Doubled, g.name+": "+finding)
		}
	}
	return nil
}

// kill brings the guest into the phase, kills, waits until all is well, and takes back what the phase has changed.
func (r *run) kill(ctx context.Context, s Step, o *Outcome) error {
	g := r.vms[s.Guest]
	if err := r.prepare(ctx, s, g); err != nil {
		return fmt.Errorf("before the kill: %w", err)
	}
	f, err := r.aim(ctx, s)
	if err != nil {
		return fmt.Errorf("before the kill: %w", err)
	}
	boots := make([]string, len(r.vms))
	for i, g := range r.vms {
		last, _ := r.consoles.last(g.name)
		boots[i] = last.Boot
	}

	begun := make(chan error, 1)
	go func() { begun <- r.begin(ctx, s.Phase, g) }()
	err = r.strike(ctx, f)
	o.Killed = f.what
	if err == nil && s.Kind == ControlPlane {
		err = r.Repair(ctx)
	}
	if failed := <-begun; err == nil {
		err = failed
	}
	if err != nil {
		return err
	}
	if err := r.wait(ctx, time.Until(f.over.Add(recoveryTime)), r.well(f)); err != nil {
		return err
	}
	o.Recovery = time.Since(f.over).Round(10 * time.Millisecond)

	moved, err := r.takeBack(ctx, s.Phase, g)
	if err != nil {
		return fmt.Errorf("after the kill: %w", err)
	}
	for i, g := range r.vms {
		if last, _ := r.consoles.last(g.name); last.Boot != boots[i] && survives(s, i, moved || f.moved) {
			o.Ended = append(o.Ended,
				fmt.Sprintf("%s ran as boot %s and runs as %s, boot %d", g.name, boots[i], last.Boot, last.Epoch))
		}
	}
	return nil
}

// survives says whether a guest must not notice a step. moved says that it has gone to a migration's target.
func survives(s Step, guest int, moved bool) bool {
	switch {
	case guest != s.Guest:
		return true
	case s.Phase == Starting || s.Phase == Stopping:
		return false
	case s.Kind.EndsGuest():
		return s.Target && !moved // before it has moved, the guest is not where the kill is
	}
	return true
}

// prepare brings a VM to where the phase begins, and replaces components that would be started late, too. A VM whose
// guest has been killed before would be started later each time; that is forgotten when it is stopped.
func (r *run) prepare(ctx context.Context, s Step, g *vm) error {
	err := r.wait(ctx, bootTime, func(ctx context.Context) string {
		for component := range components {
			pods, err := r.componentPods(ctx, component)
			for _, pod := range pods {
				if err == nil {
					err = r.renew(ctx, pod, 2)
				}
			}
			if err != nil {
				return err.Error()
			}
		}
		if err := r.componentsReady(ctx, nil); err != nil {
			return err.Error()
		}
		return ""
	})
	if err != nil {
		return err
	}
	now := &v1.VirtualMachine{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: r.ns, Name: g.name}, now); err != nil {
		return err
	}
	if s.Phase != Starting && (now.Status.StartFailure == nil || !s.Kind.EndsGuest()) {
		return nil
	}
	if err := r.switchAndWait(ctx, g, v1.RunStrategyHalted); err != nil || s.Phase == Starting {
		return err
	}
	return r.switchAndWait(ctx, g, v1.RunStrategyAlways)
}

func (r *run) switchAndWait(ctx context.Context, g *vm, strategy v1.VirtualMachineRunStrategy) error {
	if err := r.switchTo(ctx, g, strategy); err != nil {
		return err
	}
	return r.wait(ctx, bootTime, r.well(&fault{over: time.Now()}))
}

// begin begins a phase.
func (r *run) begin(ctx context.Context, phase Phase, g *vm) error {
	switch phase {
	case Starting:
		return r.switchTo(ctx, g, v1.RunStrategyAlways)
	case Plugging:
		return r.volume(ctx, g, "addvolume")
	case Migrating:
		return r.migrate(ctx, g)
	case Stopping:
		return r.switchTo(ctx, g, v1.RunStrategyHalted)
	}
	return nil
}

// takeBack undoes what a phase has changed. moved says that a migration has succeeded.
func (r *run) takeBack(ctx context.Context, phase Phase, g *vm) (moved bool, err error) {
	switch phase {
	case Plugging:
		if err := r.volume(ctx, g, "removevolume"); err != nil {
			return false, err
		}
	case Migrating:
		if moved, err = r.endMigration(ctx, g); err != nil {
			return false, err
		}
	case Stopping:
		return false, r.switchAndWait(ctx, g, v1.RunStrategyAlways)
	default:
		return false, nil
	}
	return moved, r.wait(ctx, bootTime, r.well(nil))
}
