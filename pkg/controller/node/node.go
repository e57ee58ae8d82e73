// Package node watches over the nodes that VMs run on. Its inputs are nodes, with the heartbeat that
// virt-handler leaves on them, and the VMIs on them; its outputs are phase Unknown for VMIs whose node
// does not answer, and the node's label kubevirt.io/schedulable=false when its virt-handler does not.
//
// Nothing is ended here. A VMI of a lost node fails when its pod is gone (package vmi), and a pod of
// a lost node goes when Kubernetes knows that it cannot run any more: the Node object was deleted, or
// tainted out-of-service. When virt-handler is back, it writes the true phase.
package node

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

// health is what is known of a node.
type health struct {
	// lost says that nothing can be known of the guests on it, and why.
	lost   bool
	reason string
	// stale says that virt-handler is silent though the node may be well.
	stale bool
	// again is when to look next without an event; zero is never.
	again time.Duration
}

// examine judges a node; nil means that there is none. A node without a heartbeat never had a
// virt-handler and is no concern.
func examine(node *corev1.Node, timeout time.Duration, now time.Time) health {
	if node == nil {
		return health{lost: true, reason: "the node does not exist any more"}
	}
	var h health
	if text := node.Annotations[v1.VirtHandlerHeartbeat]; text != "" {
		beat, err := parseHeartbeat(text)
		silent := now.Sub(beat)
		switch {
		case err != nil:
			h.stale, h.reason = true, err.Error()
		case silent > timeout:
			h.stale = true
			h.reason = fmt.Sprintf("virt-handler has been silent since %s", beat.UTC().Format(time.RFC3339))
		default:
			h.again = timeout - silent + time.Second
		}
		h.lost = h.stale
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionUnknown {
			h.lost, h.reason = true, "the node does not answer: "+condition.Message
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
