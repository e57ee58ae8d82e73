package vmi

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
)

// fenceAfterFlag is the launcher's flag. That a pod has it is proof that its launcher ends the guest by itself, since nobody
// can change a pod's arguments.
const fenceAfterFlag = "--fence-after="

// killTime is how long a launcher may take to notice that its time is over, and the kernel to end its QEMU.
const killTime = 10 * time.Second

// FenceAfter is Facts.FenceAfter of a VMI: configured, if somebody starts the guest again elsewhere, else never.
func FenceAfter(ctx context.Context, from client.Reader, vmi *v1.VirtualMachineInstance, configured time.Duration) (time.Duration, error) {
	owner := metav1.GetControllerOfNoCopy(vmi)
	if configured == 0 || owner == nil {
		return 0, nil
	}
	switch owner.Kind {
	case v1.VirtualMachineInstanceReplicaSetGroupVersionKind.Kind:
		return configured, nil
	case v1.VirtualMachineGroupVersionKind.Kind:
	default:
		return 0, nil
	}
	var vm v1.VirtualMachine
	err := from.Get(ctx, types.NamespacedName{Namespace: vmi.Namespace, Name: owner.Name}, &vm)
	switch {
	case apierrors.IsNotFound(err):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("get VM %s: %w", owner.Name, err)
	}
	strategy, err := vm.RunStrategy()
	if err != nil {
		return 0, fmt.Errorf("VM %s: %w", owner.Name, err)
	}
	if strategy == v1.RunStrategyAlways || strategy == v1.RunStrategyRerunOnFailure {
		return configured, nil
	}
	return 0, nil
}

// FenceArgs are those of a launcher's arguments that say when it ends its guest.
func FenceArgs(args []string) []string {
	var out []string
	for _, arg := range args {
		if strings.HasPrefix(arg, fenceAfterFlag) {
			out = append(out, arg)
		}
	}
	return out
}

// fenceAfter is how long after the cluster has last heard of a pod's node its launcher ends the guest; 0 is never.
func fenceAfter(pod *corev1.Pod) time.Duration {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name != names.ContainerCompute {
			continue
		}
		for _, arg := range pod.Spec.Containers[i].Args {
			if text, found := strings.CutPrefix(arg, fenceAfterFlag); found {
				if after, err := time.ParseDuration(text); err == nil {
					return after
				}
			}
		}
	}
	return 0
}

// silenceNeeded is how long a node must have been silent for a pod's launcher to have ended its guest for certain: a
// hundredth more than the launcher waits, since no two clocks run at the same rate, and the time that killing takes. It is zero
// for a launcher that ends nothing.
func silenceNeeded(pod *corev1.Pod) time.Duration {
	after := fenceAfter(pod)
	if after <= 0 {
		return 0
	}
	return after + after/100 + killTime
}

// expired reports whether a pod's launcher has ended its guest, since the cluster has not heard of the node for too long.
func expired(view View, pod *corev1.Pod) bool {
	needed := silenceNeeded(pod)
	return needed > 0 && view.Node != nil && pod.Spec.NodeName == view.Node.Name && view.Silence >= needed
}

// awaitExpiry looks again when a pod's launcher may have ended its guest.
func (s *Step) awaitExpiry(view View, pod *corev1.Pod) {
	needed := silenceNeeded(pod)
	if needed == 0 || view.Node == nil || pod.Spec.NodeName != view.Node.Name {
		return
	}
	// Earlier, too: a heartbeat that came meanwhile has its time begin anew when it is seen.
	again := max(min(needed-view.Silence, needed/4), time.Second)
	if s.RequeueAfter == 0 || again < s.RequeueAfter {
		s.RequeueAfter = again
	}
}

// lookAtSilence asks the API server for the heartbeat of a lost node, if a launcher there ends its guest by itself.
//
// Why this is safe: a heartbeat that the API server takes is seen by every later question. So when two questions have the
// same answer, the last heartbeat was taken before the first of them was answered, and virt-handler had begun it still earlier.
// From then the launcher counts, on a clock that nobody sets; that its time is over cannot be undone by a later heartbeat.
func (r *Reconciler) lookAtSilence(ctx context.Context, view *View) error {
	if view.Node == nil {
		return nil
	}
	needed := false
	for _, pod := range view.Pods {
		needed = needed || pod.Spec.NodeName == view.Node.Name && silenceNeeded(pod) > 0
	}
	if !needed {
		return nil
	}
	asked := r.Now()
	var node corev1.Node
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(view.Node), &node)
	switch {
	case apierrors.IsNotFound(err):
		view.Node = nil
		return nil
	case err != nil:
		return fmt.Errorf("get node %s: %w", view.Node.Name, err)
	}
	view.Silence = r.silences.observe(node.Name, string(node.UID)+node.Annotations[v1.VirtHandlerHeartbeat], asked, r.Now())
	return nil
}

// silences remembers the last heartbeat that was seen of each lost node, and since when. A new leader begins anew, which
// only makes it more patient. The zero value is empty; it may be used by several goroutines.
type silences struct {
	mu    sync.Mutex
	nodes map[string]silence
}

type silence struct {
	beat  string
	since time.Time
}

// observe notes a node's heartbeat, which was asked for and answered at these times, and returns for how long at least
// there was no other.
func (s *silences) observe(node, beat string, asked, answered time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, known := s.nodes[node]
	if !known || last.beat != beat {
		if s.nodes == nil {
			s.nodes = map[string]silence{}
		}
		s.nodes[node] = silence{beat: beat, since: answered}
		return 0
	}
	return max(0, asked.Sub(last.since))
}
