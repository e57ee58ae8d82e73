package vmicontroller

import (
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// StartRevision returns the name of the ControllerRevision that keeps the spec with which a VM's VMI was started;
// KubeVirt's.
func StartRevision(vm types.UID, generation int64) string {
	return fmt.Sprintf("revision-start-vm-%s-%d", vm, generation)
}

// startRevision returns the name of a VMI's start revision, or "" for a VMI that no VM has made. The generation in its
// annotations is the one at its start only until the VM is changed while the guest runs.
func startRevision(vmi *v1.VirtualMachineInstance) string {
	owner := metav1.GetControllerOfNoCopy(vmi)
	if owner == nil || owner.Kind != v1.VirtualMachineGroupVersionKind.Kind {
		return ""
	}
	generation, err := strconv.ParseInt(vmi.Annotations[v1.VirtualMachineGenerationAnnotation], 10, 64)
	if err != nil {
		return "" // adopted, or made by somebody else
	}
	return StartRevision(owner.UID, generation)
}
