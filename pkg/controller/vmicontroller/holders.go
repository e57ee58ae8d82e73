package vmicontroller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/fencing"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// A claim is leased to the pods in status.activePods of the VMIs that use it. Only virt-controller and virt-handler
// write that field, and a VMI does not go before its pods have ended, so the lease costs no write and no tenant can
// forge it. A pod gives its lease up when its kubelet has said that it ended, when the virt-handler of its node has
// found no process of it any more and writes that the VMI has ended, or when its node is fenced. That the pod's object
// is gone says nothing: whoever deletes a pod with force removes the object, and its QEMU goes on to write until the
// node ends it.

// ReasonEndNotConfirmed is the reason of a VMI that waits for the pod of its guest, whose object was removed.
const ReasonEndNotConfirmed = "EndNotConfirmed"

// holdersAgain is the pause between two looks at what holds a lease: that a node was fenced is no event of a VMI.
const holdersAgain = fencedAgain

// endings remembers by VMI the pods whose kubelet said that they ended, which may be removed before anybody looks. The
// zero value is empty; it may be used by several goroutines. A new leader knows only of pods that still exist, which
// makes it more patient.
type endings struct {
	mu   sync.Mutex
	pods map[types.NamespacedName]map[types.UID]bool
}

// note remembers a pod that has ended.
func (e *endings) note(object client.Object) {
	pod, ok := object.(*corev1.Pod)
	if !ok || !life.PodEnded(pod) {
		return
	}
	owner := life.InstanceOf(pod)
	if owner == nil {
		return
	}
	key := types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pods == nil {
		e.pods = map[types.NamespacedName]map[types.UID]bool{}
	}
	if e.pods[key] == nil {
		e.pods[key] = map[types.UID]bool{}
	}
	e.pods[key][pod.UID] = true
}

// has reports whether a pod of a VMI has ended.
func (e *endings) has(vmi types.NamespacedName, pod types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pods[vmi][pod]
}

// forget drops a VMI that does not exist any more.
func (e *endings) forget(vmi types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.pods, vmi)
}

// noting lets every event of a pod through and remembers those that have ended. It runs before the event makes a pass.
func (e *endings) noting() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(c event.CreateEvent) bool { e.note(c.Object); return true },
		UpdateFunc:  func(u event.UpdateEvent) bool { e.note(u.ObjectNew); return true },
		DeleteFunc:  func(d event.DeleteEvent) bool { e.note(d.Object); return true },
		GenericFunc: func(event.GenericEvent) bool { return true },
	}
}

// holders returns the nodes, by pod, on which a guest of the VMI may still run although its pod was removed. pods are
// those that exist.
func (r *Reconciler) holders(
	ctx context.Context, vmi *v1.VirtualMachineInstance, pods []*corev1.Pod,
) (map[types.UID]string, error) {
	if !Scheduled(vmi) || vmi.IsFinal() {
		return nil, nil // its guest has not begun, or its end is known
	}
	var out map[types.UID]string
	for uid, name := range vmi.Status.ActivePods {
		if name == "" {
			continue // the guest has left it
		}
		exists := slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return pod.UID == uid })
		if exists || r.endings.has(client.ObjectKeyFromObject(vmi), uid) {
			continue
		}
		var node corev1.Node
		err := r.Client.Get(ctx, types.NamespacedName{Name: name}, &node)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("get node %s: %w", name, err)
		}
		if err != nil || fencing.Fenced(&node) {
			continue // a node that was deleted is off: see docs/node-loss.md
		}
		if out == nil {
			out = map[types.UID]string{}
		}
		out[uid] = name
	}
	return out, nil
}

// keepLease keeps a VMI whose pods were removed until their nodes have said that its guest has ended. It reports
// whether it does.
func (s *Step) keepLease(view View) bool {
	if len(view.Holders) == 0 {
		return false
	}
	s.RequeueAfter = holdersAgain
	message := notConfirmed(view.Holders)
	old := conditions.Find(s.Status.Conditions, v1.VirtualMachineInstanceReady)
	if old == nil || old.Reason != ReasonEndNotConfirmed {
		s.Events = append(s.Events, Event{corev1.EventTypeWarning, ReasonEndNotConfirmed, message})
	}
	conditions.Set(&s.Status.Conditions, notReady(ReasonEndNotConfirmed, message), view.Now)
	return true
}

func notConfirmed(holders map[types.UID]string) string {
	nodes := slices.Compact(slices.Sorted(maps.Values(holders)))
	return fmt.Sprintf("The launcher's pod was removed, and virt-handler on node %s has not said yet that the guest "+
		"has ended. "+
		"If the node is off, taint it with %s.", strings.Join(nodes, ", "), corev1.TaintNodeOutOfService)
}

// lookAtLeases finds a claim of a VMI that has no pod yet which a guest of another VMI may still write to although its
// pod was removed. Two VMIs whose pods are there may share a claim; that is their owner's wish.
func (r *Reconciler) lookAtLeases(ctx context.Context, view *View) error {
	for _, name := range bootClaimNames(view.VMI) {
		var users v1.VirtualMachineInstanceList
		err := r.Client.List(ctx, &users, client.InNamespace(view.VMI.Namespace),
			client.MatchingFields{VMIsByClaim: name})
		if err != nil {
			return fmt.Errorf("list the VMIs that use claim %s: %w", name, err)
		}
		for i := range users.Items {
			user := &users.Items[i]
			if user.UID == view.VMI.UID {
				continue
			}
			exist, err := Pods(ctx, r.Client, user)
			if err != nil {
				return err
			}
			holders, err := r.holders(ctx, user, exist)
			if err != nil {
				return err
			}
			if len(holders) > 0 {
				view.Leased = fmt.Sprintf("claim %s is still held by VirtualMachineInstance %s: %s", name, user.Name,
					notConfirmed(holders))
				return nil
			}
		}
	}
	return nil
}
