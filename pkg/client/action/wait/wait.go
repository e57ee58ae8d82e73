package wait

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/outage"
)

// API has the methods of a client that the package calls.
type API interface {
	VMList(ctx context.Context, namespace string, opts metav1.ListOptions) (*v1.VirtualMachineList, error)
	VMIList(ctx context.Context, namespace string, opts metav1.ListOptions) (*v1.VirtualMachineInstanceList, error)
	Watch(ctx context.Context, resource, namespace string, opts metav1.ListOptions) (watch.Interface, error)
}

// retryAfter is the pause after a watch that could not be opened again.
const retryAfter = time.Second

// Until watches one virtual machine until condition holds, and returns the state in which it does. A machine that
// does not exist is an action.ErrNotFound, a deadline of ctx an action.ErrTimeout that says how things
// stand. A lost connection is made again for as long as ctx lasts.
func Until(ctx context.Context, api API, namespace, name string, condition Condition) (State, error) {
	w := &watcher{
		api: api, namespace: namespace, name: name, condition: condition, outage: outage.Follow(ctx),
	}
	defer w.outage.End()
	for {
		done, err := w.round(ctx)
		switch {
		case ctx.Err() != nil && !done:
			return w.state, w.expired(ctx)
		case done || err != nil:
			return w.state, err
		}
		if w.lost != nil {
			if action.Sleep(ctx, retryAfter) != nil {
				return w.state, w.expired(ctx)
			}
		}
	}
}

// Now returns the state, and an action.ErrTimeout when condition does not hold in it.
func Now(ctx context.Context, api API, namespace, name string, condition Condition) (State, error) {
	w := &watcher{api: api, namespace: namespace, name: name, condition: condition, outage: outage.Follow(ctx)}
	if _, err := w.list(ctx); err != nil {
		return w.state, err
	}
	met, err := w.check()
	if err == nil && !met {
		err = w.notMet()
	}
	return w.state, err
}

type watcher struct {
	api             API
	namespace, name string
	condition       Condition

	state State
	// seen is whether a first listing has been made.
	seen bool
	// lost is the failure of the last round, when the next is to wait a little.
	lost error
	// outage says that the cluster gives no answer, and that it does again.
	outage *outage.Follower
}

type versions struct{ vm, vmi string }

func (w *watcher) selector() string {
	return fields.OneTermEqualSelector(metav1.ObjectNameField, w.name).String()
}

// round lists, then watches until a watch ends. Its error is final; a failure that may pass is in w.lost.
func (w *watcher) round(ctx context.Context) (bool, error) {
	w.outage.Asks()
	v, err := w.list(ctx)
	if err != nil {
		if !w.seen || !client.Passing(err) {
			return false, err
		}
		w.lost = err
		w.outage.Lost(ctx, err)
		return false, nil
	}
	w.seen = true
	w.outage.Answered()
	if met, err := w.check(); met || err != nil {
		return met, err
	}
	vms, err := w.watch(ctx, client.VMs, v.vm)
	if err != nil {
		return false, nil
	}
	defer vms.Stop()
	vmis, err := w.watch(ctx, client.VMIs, v.vmi)
	if err != nil {
		return false, nil
	}
	defer vmis.Stop()
	w.lost = nil
	for {
		var event watch.Event
		var open bool
		select {
		case <-ctx.Done():
			return false, nil
		case event, open = <-vms.ResultChan():
		case event, open = <-vmis.ResultChan():
		}
		if !open || event.Type == watch.Error {
			w.lost = errors.New("watch ended")
			return false, nil
		}
		if !w.apply(event) {
			continue
		}
		if met, err := w.check(); met || err != nil {
			return met, err
		}
	}
}

func (w *watcher) watch(ctx context.Context, resource, version string) (watch.Interface, error) {
	i, err := w.api.Watch(ctx, resource, w.namespace,
		metav1.ListOptions{FieldSelector: w.selector(), ResourceVersion: version})
	if err != nil {
		w.lost = err
	}
	return i, err
}

func (w *watcher) list(ctx context.Context) (versions, error) {
	opts := metav1.ListOptions{FieldSelector: w.selector()}
	vms, err := w.api.VMList(ctx, w.namespace, opts)
	if err != nil {
		return versions{}, err
	}
	vmis, err := w.api.VMIList(ctx, w.namespace, opts)
	if err != nil {
		return versions{}, err
	}
	w.state = State{ending: w.state.ending}
	if len(vms.Items) > 0 {
		w.state.VM = &vms.Items[0]
	}
	if len(vmis.Items) > 0 {
		w.state.VMI = &vmis.Items[0]
	}
	return versions{vm: vms.ResourceVersion, vmi: vmis.ResourceVersion}, nil
}

// apply takes an event into the state and reports whether it changed.
func (w *watcher) apply(event watch.Event) bool {
	if event.Type == watch.Bookmark {
		return false
	}
	deleted := event.Type == watch.Deleted
	switch o := event.Object.(type) {
	case *v1.VirtualMachine:
		o.SetGroupVersionKind(v1.VirtualMachineGroupVersionKind)
		if w.state.VM = o; deleted {
			w.state.VM = nil
		}
	case *v1.VirtualMachineInstance:
		o.SetGroupVersionKind(v1.VirtualMachineInstanceGroupVersionKind)
		if w.state.VMI = o; deleted {
			w.state.VMI = nil
		}
	default:
		return false
	}
	return true
}

func (w *watcher) check() (bool, error) {
	if w.state.VM == nil && w.state.VMI == nil && !w.condition.Gone {
		return false, action.NotFound(action.ResourceVMs, w.namespace, w.name)
	}
	w.state.note()
	if w.state.restarting() && !w.condition.Gone {
		return false, nil // what holds now is of the guest that is to end
	}
	return w.condition.Met(w.state)
}

// expired returns the error for a context that ended.
func (w *watcher) expired(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	if !w.seen {
		return fmt.Errorf("%w waiting for VM %s/%s %s: the cluster gave no answer", action.ErrTimeout, w.namespace,
			w.name, w.condition.Name)
	}
	return w.notMet()
}

func (w *watcher) notMet() error {
	return fmt.Errorf("%w waiting for VM %s/%s %s: %s", action.ErrTimeout, w.namespace, w.name, w.condition.Name,
		Describe(w.state))
}

// Describe returns a state in one clause, with the reason that a condition gives.
func Describe(s State) string {
	var parts []string
	switch {
	case s.VM == nil && s.VMI == nil:
		return "it does not exist"
	case s.VM != nil && s.VM.Status.PrintableStatus != "":
		parts = append(parts, "it is "+string(s.VM.Status.PrintableStatus))
	case s.VM != nil:
		parts = append(parts, "it has no status yet")
	}
	if s.VMI != nil && s.VM == nil {
		parts = append(parts, "its instance is "+string(s.VMI.Status.Phase))
	}
	if reason := Reason(s); reason != "" {
		parts = append(parts, reason)
	}
	return strings.Join(parts, "; ")
}

// Reason returns the message of the first condition that is not as it should be; empty when all are.
func Reason(s State) string {
	if s.VM != nil {
		for _, c := range s.VM.Status.Conditions {
			if c.Type == v1.VirtualMachineFailure && c.Status == corev1.ConditionTrue && c.Message != "" {
				return c.Message
			}
		}
	}
	if s.VMI == nil {
		return ""
	}
	for _, kind := range []v1.VirtualMachineInstanceConditionType{
		v1.VirtualMachineInstanceSynchronized, "PodScheduled",
		v1.VirtualMachineInstanceReady,
	} {
		for _, c := range s.VMI.Status.Conditions {
			if c.Type == kind && c.Status == corev1.ConditionFalse && c.Message != "" {
				return c.Message
			}
		}
	}
	return ""
}
