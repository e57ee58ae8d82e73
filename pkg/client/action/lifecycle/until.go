package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/outage"
	"github.com/virtkit/virtkit/pkg/client/action/wait"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// Until returns the state of a machine in which a verb is done. instance is the UID of the instance that was there
// before; paused is whether a start was to leave it paused. It is false for verbs that leave no trace in the API
// (Reset, SoftReboot, EvacuateCancel), for Migrate, which Follow reports, and for MigrateCancel: see Cancelled.Wait.
func Until(verb Verb, instance types.UID, paused bool) (wait.Condition, bool) {
	switch verb {
	case Start:
		if paused {
			return pausedIs(true), true
		}
		return wait.Running(), true
	case Stop:
		return wait.Stopped(), true
	case Restart:
		return wait.RunningAfter(string(instance)), true
	case Pause:
		return pausedIs(true), true
	case Unpause:
		return pausedIs(false), true
	case Delete:
		return UntilGone("", instance), true
	}
	return wait.Condition{}, false
}

// UntilGone is the condition in which the VM with a UID, and the instance with one, are deleted; empty UIDs are of any.
// Another VM that has the name by now, with an instance of its own, is not waited for.
func UntilGone(vm, instance types.UID) wait.Condition {
	return wait.Condition{Name: "to be deleted", Gone: true, Met: func(s wait.State) (bool, error) {
		if s.VM != nil && (vm == "" || s.VM.UID == vm) {
			return false, nil
		}
		if s.VMI == nil || instance != "" && s.VMI.UID != instance {
			return true, nil
		}
		owner := metav1.GetControllerOfNoCopy(s.VMI)
		return vm != "" && owner != nil && owner.UID != vm, nil
	}}
}

// UntilInstanceGone is the condition in which the instance with a UID is deleted, whatever becomes of its VM.
func UntilInstanceGone(instance types.UID) wait.Condition {
	return wait.Condition{Name: "to be deleted", Gone: true, Met: func(s wait.State) (bool, error) {
		return s.VMI == nil || s.VMI.UID != instance && instance != "", nil
	}}
}

// pausedIs holds when the guest is paused or not, and its VM does not show the contrary any more, as virt-controller
// writes that a moment later: who lists VMs next sees what was waited for.
func pausedIs(want bool) wait.Condition {
	name := "to be paused"
	if !want {
		name = "to run on"
	}
	return wait.Condition{Name: name, Met: func(s wait.State) (bool, error) {
		return life.Running(s.VMI) &&
			conditions.True(s.VMI.Status.Conditions, v1.VirtualMachineInstancePaused) == want &&
			!showsPaused(s.VM, !want), nil
	}}
}

// showsPaused reports whether the printable status of a VM says that it is paused, or that it is not. One that says
// something else, Migrating for instance, does neither; nor does an instance without a VM.
func showsPaused(vm *v1.VirtualMachine, paused bool) bool {
	if vm == nil {
		return false
	}
	switch vm.Status.PrintableStatus {
	case v1.VirtualMachineStatusPaused:
		return paused
	case v1.VirtualMachineStatusStarting, v1.VirtualMachineStatusRunning:
		return !paused
	}
	return false
}

// Watcher follows migrations.
type Watcher interface {
	MigrationList(
		ctx context.Context, namespace string, opts metav1.ListOptions,
	) (*v1.VirtualMachineInstanceMigrationList, error)
	Watch(ctx context.Context, resource, namespace string, opts metav1.ListOptions) (watch.Interface, error)
}

// retryAfter is the pause after a watch that was lost.
const retryAfter = time.Second

// Follow follows a migration until it is final and returns it as it is then. report, which may be nil, is called with
// each state. The error of one that fails says why, that of a ctx which runs out is an action.ErrTimeout.
func Follow(
	ctx context.Context, api Watcher, namespace, name string, report func(*v1.VirtualMachineInstanceMigration),
) (*v1.VirtualMachineInstanceMigration, error) {
	f := &follower{api: api, namespace: namespace, name: name, report: report, outage: outage.Follow(ctx)}
	defer f.outage.End()
	for {
		err := f.round(ctx)
		switch {
		case f.last != nil && f.last.IsFinal():
			return f.last, failure(f.last)
		case errors.Is(ctx.Err(), context.Canceled):
			return f.last, ctx.Err()
		case ctx.Err() != nil:
			return f.last,
				fmt.Errorf("%w waiting for migration %s/%s: %s", action.ErrTimeout, namespace, name, f.describe())
		case err != nil:
			return f.last, err
		}
		timer := time.NewTimer(retryAfter)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
}

type follower struct {
	api             Watcher
	namespace, name string
	report          func(*v1.VirtualMachineInstanceMigration)
	last            *v1.VirtualMachineInstanceMigration
	outage          *outage.Follower
}

// round lists, then watches until the migration is final or the watch ends. Its error is for good.
func (f *follower) round(ctx context.Context) error {
	opts := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, f.name).String()}
	f.outage.Asks()
	list, err := f.api.MigrationList(ctx, f.namespace, opts)
	if err != nil {
		if client.Passing(err) {
			f.outage.Lost(ctx, err)
			return nil
		}
		return fmt.Errorf("look at migration %s/%s: %w", f.namespace, f.name, err)
	}
	f.outage.Answered()
	if len(list.Items) == 0 {
		return fmt.Errorf("migration %s/%s was deleted: it is cancelled", f.namespace, f.name)
	}
	if f.saw(&list.Items[0]) {
		return nil
	}
	opts.ResourceVersion = list.ResourceVersion
	events, err := f.api.Watch(ctx, client.Migrations, f.namespace, opts)
	if err != nil {
		if client.Passing(err) || apierrors.IsResourceExpired(err) {
			return nil
		}
		return fmt.Errorf("watch migration %s/%s: %w", f.namespace, f.name, err)
	}
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, open := <-events.ResultChan():
			if !open || event.Type == watch.Error {
				return nil
			}
			m, ok := event.Object.(*v1.VirtualMachineInstanceMigration)
			if !ok {
				continue
			}
			m.SetGroupVersionKind(v1.VirtualMachineInstanceMigrationGroupVersionKind)
			if f.saw(m) {
				return nil
			}
		}
	}
}

// saw takes a state and reports whether it is the last.
func (f *follower) saw(m *v1.VirtualMachineInstanceMigration) bool {
	f.last = m
	if f.report != nil {
		f.report(m)
	}
	return m.IsFinal()
}

func (f *follower) describe() string {
	if f.last == nil {
		return "the cluster gave no answer"
	}
	return Progress(f.last)
}

// failure returns why a final migration did not succeed, nil when it did.
func failure(m *v1.VirtualMachineInstanceMigration) error {
	if m.Status.Phase != v1.MigrationFailed {
		return nil
	}
	why := "its VirtualMachineInstanceMigration " + m.Name + " says no reason"
	if state := m.Status.MigrationState; state != nil && state.FailureReason != "" {
		why = state.FailureReason
	} else {
		for _, c := range m.Status.Conditions {
			if c.Message != "" && !conditions.Note(c.Type) {
				why = c.Message
			}
		}
	}
	return fmt.Errorf("migration of VMI %s/%s failed: %s", m.Namespace, m.Spec.VMIName, why)
}

// Progress returns in a clause how far a migration is: "Running, node1 → node2".
func Progress(m *v1.VirtualMachineInstanceMigration) string {
	phase := string(m.Status.Phase)
	if phase == "" {
		phase = string(v1.MigrationPending)
	}
	state := m.Status.MigrationState
	switch {
	case state == nil || state.SourceNode == "" && state.TargetNode == "":
		return phase
	case state.TargetNode == "":
		return phase + ", from " + state.SourceNode
	}
	return phase + ", " + state.SourceNode + " → " + state.TargetNode
}
