package vmicontroller

import (
	"context"
	"fmt"
	"strconv"
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
	"github.com/virtkit/virtkit/pkg/vm/fencing"
	"github.com/virtkit/virtkit/pkg/vm/fencing/boottime"
)

// fenceAfterFlag is the launcher's flag. That a pod has it is proof that its launcher ends the guest by itself, since
// nobody can change a pod's arguments.
const fenceAfterFlag = "--fence-after="

// FenceAfter returns Facts.FenceAfter of a VMI: configured, if the guest is started again elsewhere, else never.
func FenceAfter(
	ctx context.Context, from client.Reader, vmi *v1.VirtualMachineInstance, configured time.Duration,
) (time.Duration, error) {
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

// FenceArgs returns the arguments of a launcher that say when it ends its guest.
func FenceArgs(args []string) []string {
	var out []string
	for _, arg := range args {
		if strings.HasPrefix(arg, fenceAfterFlag) {
			out = append(out, arg)
		}
	}
	return out
}

// fenceAfter returns the time since the cluster last heard of a pod's node after which its launcher ends the guest; 0
// means never.
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

// silenceNeeded returns the time that a node must have been silent for a pod's launcher to have ended its guest for
// certain; zero for a launcher that ends nothing.
func silenceNeeded(pod *corev1.Pod) time.Duration { return fencing.Needed(fenceAfter(pod)) }

// expired reports whether a pod's launcher has ended its guest, since the cluster has not heard of the node for too
// long.
func expired(view View, pod *corev1.Pod) bool {
	needed := silenceNeeded(pod)
	return needed > 0 && view.Node != nil && pod.Spec.NodeName == view.Node.Name &&
		view.Silence[fenceAfter(pod)] >= needed
}

// awaitExpiry looks again as long as a pod's launcher may not have ended its guest: often, since the count ends when a
// look is late.
func (s *Step) awaitExpiry(view View, pod *corev1.Pod) {
	if silenceNeeded(pod) == 0 || view.Node == nil || pod.Spec.NodeName != view.Node.Name {
		return
	}
	again := fencing.PollWithin(fenceAfter(pod)) / 2
	if s.RequeueAfter == 0 || again < s.RequeueAfter {
		s.RequeueAfter = again
	}
}

// lookAtSilence asks the API server for the heartbeat of a lost node, and for those of the nodes in its Set, if a
// launcher there ends its guest by itself. Why this is safe says package fencing: a heartbeat that the API server takes
// is seen by every later question.
func (r *Reconciler) lookAtSilence(ctx context.Context, view *View) error {
	if view.Node == nil {
		return nil
	}
	for _, pod := range view.Pods {
		after := fenceAfter(pod)
		if _, known := view.Silence[after]; known || after <= 0 || pod.Spec.NodeName != view.Node.Name {
			continue
		}
		silence, err := r.silences.look(ctx, r.Live, view.Node.Name, after)
		switch {
		case apierrors.IsNotFound(err):
			view.Node = nil
			return nil
		case err != nil:
			return err
		}
		if view.Silence == nil {
			view.Silence = map[time.Duration]time.Duration{}
		}
		view.Silence[after] = silence
	}
	return nil
}

// silences counts for how long lost nodes have been silent. A new leader begins anew, which only makes it more patient.
// The zero value has counted nothing; it may be used by several goroutines.
type silences struct {
	// clock also runs while the node sleeps; boottime.Now unless set.
	clock func() time.Duration

	mu    sync.Mutex
	nodes map[silentFor]*silence
}

// silentFor is the key of one count: a node, for launchers with one --fence-after.
type silentFor struct {
	node  string
	after time.Duration
}

type silence struct {
	mu       sync.Mutex
	count    fencing.Count
	polled   bool
	asked    time.Duration
	lasted   time.Duration
	lookedAt time.Duration // of silences.mu
}

// forgetAfter is the time, in fences, after which a node that nobody has looked at is forgotten.
const forgetAfter = 2

// look polls, unless somebody has just now, and returns for how long at least a node has been silent.
func (s *silences) look(
	ctx context.Context, from client.Reader, node string, after time.Duration,
) (time.Duration, error) {
	now := s.clock
	if now == nil {
		now = boottime.Now
	}
	n := s.of(silentFor{node, after}, now())
	n.mu.Lock()
	defer n.mu.Unlock()
	asked := now()
	if n.polled && n.lasted < after && asked-n.asked < fencing.PollWithin(after)/4 {
		return n.lasted, nil // what a guest is given up for is always new
	}
	n.polled = false
	poll, err := ask(ctx, from, node, asked, now)
	if err != nil {
		n.count.Fail()
		return 0, err
	}
	n.polled, n.asked, n.lasted = true, asked, n.count.Observe(after, poll)
	return n.lasted, nil
}

// of returns the count of a node; those that nobody asks for any more are forgotten.
func (s *silences) of(what silentFor, now time.Duration) *silence {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, n := range s.nodes {
		if now-n.lookedAt > forgetAfter*other.after {
			delete(s.nodes, other)
		}
	}
	if s.nodes == nil {
		s.nodes = map[silentFor]*silence{}
	}
	n := s.nodes[what]
	if n == nil {
		n = &silence{}
		s.nodes[what] = n
	}
	n.lookedAt = now
	return n
}

// ask reads a node and the nodes of its Set, past the cache.
func ask(
	ctx context.Context, from client.Reader, name string, asked time.Duration, now func() time.Duration,
) (fencing.Poll, error) {
	var node corev1.Node
	if err := from.Get(ctx, types.NamespacedName{Name: name}, &node); err != nil {
		return fencing.Poll{}, fmt.Errorf("get node %s: %w", name, err)
	}
	poll := fencing.Poll{
		Asked: asked,
		Beat: string(node.UID) + node.Annotations[v1.VirtHandlerHeartbeat] +
			node.Annotations[names.AnnotationHeartbeatTaken],
		Paused:  node.Annotations[names.AnnotationHeartbeatPaused] != "",
		Set:     fencing.ParseSet(node.Annotations[names.AnnotationFencingSet]),
		Members: map[string]fencing.Member{},
	}
	for _, member := range poll.Set {
		if member == name {
			continue // it is the one that is silent
		}
		var other corev1.Node
		err := from.Get(ctx, types.NamespacedName{Name: member}, &other)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return fencing.Poll{}, fmt.Errorf("get node %s, which vouches for node %s: %w", member, name, err)
		default:
			poll.Members[member] = fencing.Member{
				Version: version(other.ResourceVersion),
				Taken:   version(other.Annotations[names.AnnotationHeartbeatTaken]),
			}
		}
	}
	poll.Answered = now()
	return poll, nil
}

// version returns a resource version as a number, by which they compare since Kubernetes 1.35 and did before; 0 is
// none.
func version(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0 // such a node is not healthy
	}
	return n
}
