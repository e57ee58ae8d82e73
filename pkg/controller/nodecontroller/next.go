// Package nodecontroller watches over the nodes that VMs run on. Its inputs are nodes, with virt-handler's heartbeat on
// them, and their VMIs; its outputs are phase Unknown for VMIs whose node does not answer, the node's label
// kubevirt.io/schedulable=false when its virt-handler does not, and the labels
// scheduling.node.kubevirt.io/tsc-frequency-N for the frequencies of guests' time stamp counters there.
//
// It ends nothing. A VMI of a lost node fails when the node is fenced or its pod is gone (package vmicontroller), and a
// pod of a lost node goes when Kubernetes knows that it cannot run any more: the Node object was deleted, or tainted
// out-of-service. When virt-handler is back, it writes the true phase. docs/node-loss.md describes all of it.
package nodecontroller

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/report/host"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/fencing"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// View is the input of Next.
type View struct {
	// Node is nil when it does not exist any more.
	Node *corev1.Node
	// VMIs are the VMIs on it.
	VMIs []*v1.VirtualMachineInstance
	// Used are the frequencies that guests' time stamp counters were given.
	Used []int64
	// Timeout is the time without a heartbeat after which virt-handler counts as lost.
	Timeout time.Duration
	Now     time.Time
}

// Step holds what to write; the zero Step writes nothing.
type Step struct {
	// Frequencies are the labels for them that change; see frequencies.
	Frequencies map[string]bool
	// Unschedulable says that new VMs are to be kept off the node, Lose are the VMIs whose state is not known any more,
	// and Reason says why.
	Unschedulable bool
	Lose          []Lost
	Reason        string
	frame.Requeue
}

// Lost is a VMI whose state is not known any more, and the status that says so.
type Lost struct {
	VMI    *v1.VirtualMachineInstance
	Status v1.VirtualMachineInstanceStatus
}

// Next decides.
func Next(view View) Step {
	health := examine(view.Node, view.Timeout, view.Now)
	step := Step{Reason: health.reason, Requeue: frame.Requeue{RequeueAfter: health.again}}
	if view.Node != nil {
		step.Frequencies = frequencies(view.Node.Labels, view.Used)
		step.Unschedulable = health.silent && life.TakesVMs(view.Node)
	}
	if !health.lost {
		return step
	}
	for _, instance := range view.VMIs {
		if !instance.IsFinal() && instance.Status.Phase != v1.Unknown && vmicontroller.Scheduled(instance) {
			status := *instance.Status.DeepCopy()
			markUnknown(&status, view.Now)
			step.Lose = append(step.Lose, Lost{VMI: instance, Status: status})
		}
	}
	return step
}

// health holds what is known of a node.
type health struct {
	// lost says that nothing can be known of the guests on it, and why.
	lost   bool
	reason string
	// silent says that virt-handler is, so that the node must not be given VMs.
	silent bool
	// again is the delay before the next look when no event comes; zero means never.
	again time.Duration
}

// examine judges a node; nil means that there is none. A node without a heartbeat never had a
// virt-handler and is no concern. One whose kubelet is silent but whose virt-handler has left a heartbeat since
// is not lost: its guests are looked after.
func examine(node *corev1.Node, timeout time.Duration, now time.Time) health {
	if node == nil {
		return health{lost: true, reason: "the node does not exist any more"}
	}
	var h health
	text := node.Annotations[v1.VirtHandlerHeartbeat]
	beat, err := host.Heartbeat(node)
	if text != "" {
		quiet := now.Sub(beat)
		switch {
		case err != nil:
			h.silent, h.reason = true, err.Error()
		case quiet > timeout:
			h.silent = true
			h.reason = fmt.Sprintf("virt-handler has been silent since %s", beat.UTC().Format(time.RFC3339))
		default:
			h.again = timeout - quiet + time.Second
		}
		h.lost = h.silent
	}
	if c := fencing.Silent(node); c != nil &&
		(text == "" || err != nil || !beat.After(c.LastTransitionTime.Time)) {
		h.lost, h.silent, h.reason = true, text != "", "the node does not answer: "+c.Message
	}
	return h
}

// maxTransitions bounds the phase transitions of a VMI whose node keeps coming and going; the first ones,
// which show how it started, stay.
const (
	maxTransitions   = 32
	firstTransitions = 8
)

func recent(
	all []v1.VirtualMachineInstancePhaseTransitionTimestamp,
) []v1.VirtualMachineInstancePhaseTransitionTimestamp {
	if len(all) < maxTransitions {
		return all
	}
	return append(all[:firstTransitions:firstTransitions], all[len(all)-(maxTransitions-firstTransitions)+2:]...)
}

// markUnknown makes a status say that nothing is known; virt-handler sets all of this again.
func markUnknown(status *v1.VirtualMachineInstanceStatus, now time.Time) {
	status.Phase = v1.Unknown
	status.Reason = vmicontroller.ReasonNodeUnresponsive
	status.PhaseTransitionTimestamps = append(recent(status.PhaseTransitionTimestamps),
		v1.VirtualMachineInstancePhaseTransitionTimestamp{
			Phase:                    v1.Unknown,
			PhaseTransitionTimestamp: metav1.NewTime(now),
		})
	ready := conditions.Find(status.Conditions, v1.VirtualMachineInstanceReady)
	if ready != nil && ready.Reason != vmicontroller.ReasonNodeUnresponsive {
		if ready.Status != corev1.ConditionFalse {
			ready.LastTransitionTime = metav1.NewTime(now)
		}
		ready.Status = corev1.ConditionFalse
		ready.Reason = vmicontroller.ReasonNodeUnresponsive
		ready.Message = "the node does not answer"
	}
}
