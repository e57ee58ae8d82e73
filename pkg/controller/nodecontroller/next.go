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
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/frame"
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
	Lose          []*v1.VirtualMachineInstance
	Reason        string
	frame.Requeue
}

// Next decides.
func Next(view View) Step {
	health := examine(view.Node, view.Timeout, view.Now)
	step := Step{Reason: health.reason, Requeue: frame.Requeue{RequeueAfter: health.again}}
	if view.Node != nil {
		step.Frequencies = frequencies(view.Node.Labels, view.Used)
		step.Unschedulable = health.silent && view.Node.Labels[v1.NodeSchedulable] == "true"
	}
	if !health.lost {
		return step
	}
	for _, instance := range view.VMIs {
		if !instance.IsFinal() && instance.Status.Phase != v1.Unknown && vmicontroller.Scheduled(instance) {
			step.Lose = append(step.Lose, instance)
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
	beat, err := parseHeartbeat(text)
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
	for i := range node.Status.Conditions {
		c := &node.Status.Conditions[i]
		if c.Type != corev1.NodeReady || c.Status != corev1.ConditionUnknown {
			continue
		}
		if text == "" || err != nil || !beat.After(c.LastTransitionTime.Time) {
			h.lost, h.silent, h.reason = true, text != "", "the node does not answer: "+c.Message
		}
	}
	return h
}

// parseHeartbeat reads the annotation: RFC 3339, or the same in the quotes of a JSON time, as
// KubeVirt writes it.
func parseHeartbeat(text string) (time.Time, error) {
	if len(text) > 1 && text[0] == '"' && text[len(text)-1] == '"' {
		text = text[1 : len(text)-1]
	}
	beat, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("annotation %s is not a time: %w", v1.VirtHandlerHeartbeat, err)
	}
	return beat, nil
}
