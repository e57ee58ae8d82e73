// Package policycontroller says which MultiNetworkPolicies hold for guests on networks besides the pod network: it
// compiles them (pkg/vm/network/multipolicy) and writes the rules into an annotation of the VirtualMachineInstance,
// which the virt-handlers of the guest's nodes put into its pods. Peers are known here, once for the cluster, and no
// node reads all pods and namespaces.
//
//	reads:  VirtualMachineInstances, MultiNetworkPolicies where the cluster has them; all pods and namespaces, but
//	        only from when a policy that holds for a guest selects pods by labels
//	writes: the annotation network.AnnotationPolicies of VirtualMachineInstances
package policycontroller

import (
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/network/multipolicy"
)

// View is the input of Next.
type View struct {
	VMI *v1.VirtualMachineInstance
	// Rules are what holds for the guest.
	Rules multipolicy.Rules
}

// Step holds what to write.
type Step struct {
	// Text is the annotation as it should be; "" leaves it.
	Text string
	frame.Requeue
}

// Next returns the write that tells virt-handler what holds for the guest of a VMI.
func Next(view View) Step {
	text := multipolicy.Encode(view.Rules)
	if view.VMI.Annotations[network.AnnotationPolicies] == text {
		return Step{}
	}
	return Step{Text: text}
}
