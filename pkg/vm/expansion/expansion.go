// Package expansion says how far the expansion of a VMI's claims is: first the storage gives the claim its new size,
// then the disk of the running guest grows. The condition Condition of the VMI is True until both are done.
// virt-controller writes it while the storage works (StorageExpanding) and hands it over to virt-handler
// (GuestExpanding), which removes it when the guest has the sizes, or says why not. It is pure.
package expansion

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

// Condition is the condition of a VMI some of whose claims are expanded and not all of whose disks have the new size.
const Condition v1.VirtualMachineInstanceConditionType = "VolumesExpanding"

// Reasons of the condition.
const (
	// ReasonStorage: the storage has not given a claim its size.
	ReasonStorage = "StorageExpanding"
	// ReasonGuest: the claims have their sizes, and the guest's disks do not yet.
	ReasonGuest = "GuestExpanding"
)

// ConditionOf returns the condition of a VMI; nil when nothing expands.
func ConditionOf(vmi *v1.VirtualMachineInstance) *v1.VirtualMachineInstanceCondition {
	return conditions.With(vmi.Status.Conditions, Condition, corev1.ConditionTrue)
}

// Claim is the state of a claim that is being expanded.
type Claim struct {
	Name string
	// Has and Wants are the capacity and the request.
	Has, Wants resource.Quantity
	// OnNode: the storage has the size To, and the kubelet of a node on which a pod uses the claim is to make the file
	// system larger. To is less than Wants when an earlier expansion got so far; the storage goes on after it.
	OnNode bool
	To     resource.Quantity
	// Failure is the last failure, in the storage's words, on one line; empty when none is known.
	Failure string
}

// Of returns how far the expansion of a claim is; nil when there is none: the claim has what it requests, or is not
// bound yet.
func Of(claim *corev1.PersistentVolumeClaim) *Claim {
	has, known := claim.Status.Capacity[corev1.ResourceStorage]
	wants, asked := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if !known || !asked || wants.Cmp(has) <= 0 {
		return nil
	}
	out := &Claim{Name: claim.Name, Has: has, Wants: wants, To: wants}
	switch claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] {
	case corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimNodeResizeInProgress,
		corev1.PersistentVolumeClaimNodeResizeInfeasible:
		out.OnNode = true
	}
	if allocated, known := claim.Status.AllocatedResources[corev1.ResourceStorage]; known && allocated.Cmp(wants) < 0 {
		out.To = allocated
	}
	for _, c := range claim.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case corev1.PersistentVolumeClaimFileSystemResizePending:
			out.OnNode = true
		case corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError:
			out.Failure = strings.Join(strings.Fields(c.Message), " ") // programs of file systems write several lines
		}
	}
	return out
}

// Earlier reports whether an earlier expansion, to less, has to be over first.
func (c *Claim) Earlier() bool { return c.OnNode && c.To.Cmp(c.Wants) < 0 }

// String says what the claim waits for.
func (c *Claim) String() string {
	text := fmt.Sprintf("claim %s grows from %s to %s: ", c.Name, &c.Has, &c.Wants)
	switch {
	case c.Failure != "":
		return text + "the storage cannot yet: " + c.Failure
	case c.Earlier():
		return text + fmt.Sprintf("an earlier expansion to %s comes first, for which the node is to make its file "+
			"system larger", &c.To)
	case c.OnNode:
		return text + "the node is to make its file system larger"
	}
	return text + "the storage works on it"
}

// Key tells apart what the guest's disks depend on: which are there, and the sizes of their claims.
func Key(vmi *v1.VirtualMachineInstance) string {
	var out []string
	for _, s := range vmi.Status.VolumeStatus {
		line := s.Name + " " + s.Target
		if info := s.PersistentVolumeClaimInfo; info != nil {
			capacity, request := info.Capacity[corev1.ResourceStorage], info.Requests[corev1.ResourceStorage]
			line += " " + info.ClaimName + " " + capacity.String() + " " + request.String()
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}
