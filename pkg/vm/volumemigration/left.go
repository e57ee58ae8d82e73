package volumemigration

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

// CopiedClaimsAnnotation says what becomes of a claim once its disk is on another: ClaimsKeep, as without it, or
// ClaimsDelete. It is on the VM, on the VM's template, or on the StorageClass of the claim.
const CopiedClaimsAnnotation = "virtkit.io/copied-claims"

// The values of CopiedClaimsAnnotation.
const (
	ClaimsKeep   = "Keep"
	ClaimsDelete = "Delete"
)

// LeftCondition is on a VMI while claims are known that its guest leaves; its message is JSON of a list of Left. A
// claim is deleted only if it is there with its UID, and has LeftAnnotation: the status is what tenants cannot write,
// and the claim what the guest's node cannot.
//
//	claim data: left by VMI 99 ─► status: data is on claim data, UID 1234 ─► the disk is copied
//	─► claim data is deleted, if it may be ─► status
//
// What of a list is left when the guest ends is forgotten with the VMI, and the claims are kept.
const LeftCondition v1.VirtualMachineInstanceConditionType = conditions.ClaimsLeft

// LeftAnnotation is on a claim from which virt-controller has a disk copied: the UID of the VMI, whose guest leaves it.
const LeftAnnotation = "virtkit.io/left-by"

// reasonLeft is the reason of LeftCondition.
const reasonLeft = "DisksAreCopied"

// Left is a claim that a guest leaves, or has left.
type Left struct {
	// Volume is the volume's name in the spec.
	Volume string    `json:"volume"`
	Claim  string    `json:"claim"`
	UID    types.UID `json:"uid"`
}

// LeftBy returns the claims that the status of a VMI says its guest leaves.
func LeftBy(status *v1.VirtualMachineInstanceStatus) []Left {
	c := conditions.Find(status.Conditions, LeftCondition)
	if c == nil {
		return nil
	}
	return listed[Left](c.Message)
}

// SetLeft has the status of a VMI say which claims its guest leaves; none takes the condition away.
func SetLeft(status *v1.VirtualMachineInstanceStatus, left []Left, now time.Time) error {
	if len(left) == 0 {
		conditions.Remove(&status.Conditions, LeftCondition)
		return nil
	}
	text, err := listOf(left)
	if err != nil {
		return err
	}
	conditions.Set(&status.Conditions, v1.VirtualMachineInstanceCondition{
		Type: LeftCondition, Status: corev1.ConditionTrue, Reason: reasonLeft, Message: text,
	}, now)
	return nil
}

// Leaves returns LeftBy with the claims from which the disks of a VMI are about to be copied. from are the claims that
// the guest uses, by name.
func Leaves(vmi *v1.VirtualMachineInstance, from map[string]*corev1.PersistentVolumeClaim) []Left {
	out := LeftBy(&vmi.Status)
	for _, m := range Moves(vmi) {
		claim := from[m.From]
		if claim == nil || slices.ContainsFunc(out, func(l Left) bool { return l.UID == claim.UID }) {
			continue
		}
		out = append(out, Left{m.Volume, m.From, claim.UID})
	}
	return out
}

// IsLeftBy reports whether a claim has LeftAnnotation with the UID of a VMI.
func IsLeftBy(claim *corev1.PersistentVolumeClaim, vmi *v1.VirtualMachineInstance) bool {
	return vmi.UID != "" && claim.Annotations[LeftAnnotation] == string(vmi.UID)
}

// DeletesClaims reports whether a claim of a StorageClass, which may be nil, is deleted once a VM's guest has left it:
// by what the VM says, or else its template, or else the class. What is no value of CopiedClaimsAnnotation keeps it.
func DeletesClaims(vm *v1.VirtualMachine, class *storagev1.StorageClass) bool {
	value, given := vm.Annotations[CopiedClaimsAnnotation]
	if !given && vm.Spec.Template != nil {
		value, given = vm.Spec.Template.ObjectMeta.Annotations[CopiedClaimsAnnotation]
	}
	if !given && class != nil {
		value = class.Annotations[CopiedClaimsAnnotation]
	}
	return value == ClaimsDelete
}
