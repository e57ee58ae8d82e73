// Package conditions reads and changes lists of status conditions. Every component changes its conditions here, so that
// all keep the same times. It is pure.
package conditions

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	exportv1beta1 "kubevirt.io/api/export/v1beta1"
	"kubevirt.io/api/pool/v1beta1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"
)

// Condition is a condition of any object: structs of the same fields, but each with its own type for the condition's
// type.
type Condition interface {
	v1.KubeVirtCondition | v1.VirtualMachineCondition | v1.VirtualMachineInstanceCondition |
		v1.VirtualMachineInstanceMigrationCondition | v1.VirtualMachineInstanceReplicaSetCondition |
		v1beta1.VirtualMachinePoolCondition | corev1.PodCondition | corev1.NodeCondition |
		snapshotv1beta1.Condition | clonev1beta1.Condition | exportv1beta1.Condition
}

// Find returns the condition of a type, which points into the list, or nil.
func Find[C Condition, T ~string](list []C, of T) *C {
	for i := range list {
		if fieldsOf(&list[i]).kind == string(of) {
			return &list[i]
		}
	}
	return nil
}

// With returns the condition of a type if its status is the one given, or nil.
func With[C Condition, T ~string](list []C, of T, status corev1.ConditionStatus) *C {
	if c := Find(list, of); c != nil && fieldsOf(c).status == status {
		return c
	}
	return nil
}

// True reports whether the list has a condition of a type and its status is True.
func True[C Condition, T ~string](list []C, of T) bool {
	return With(list, of, corev1.ConditionTrue) != nil
}

// Set puts next in the place of the condition of its type, or at the end. LastTransitionTime stays while the status
// stays; otherwise it is next's, or now when that is zero. LastProbeTime stays when next has none.
func Set[C Condition](list *[]C, next C, now time.Time) {
	f := fieldsOf(&next)
	have := Find(*list, f.kind)
	if have != nil {
		old := fieldsOf(have)
		if old.status == f.status {
			*f.since = *old.since
		}
		if f.probed.IsZero() {
			*f.probed = *old.probed
		}
	}
	if f.since.IsZero() {
		*f.since = metav1.NewTime(now).Rfc3339Copy()
	}
	if have == nil {
		*list = append(*list, next)
		return
	}
	*have = next
}

// ClaimsLeft and ClaimsMade are conditions of a VMI and of a migration whose messages are notes of virt-controller
// about claims (package volumemigration).
const (
	ClaimsLeft = "virtkit.io/ClaimsLeft"
	ClaimsMade = "virtkit.io/ClaimsMade"
)

// Note reports a condition whose message is JSON that virt-controller has written for itself, and by which it deletes
// claims. It is shown to nobody.
func Note[T ~string](kind T) bool {
	return kind == ClaimsLeft || kind == ClaimsMade
}

// OfController returns the conditions of VMIs and migrations that virt-controller alone writes: those that are a Note,
// and others that virt-handler never changes. manifests/base/policy-virt-handler.yaml has the same list.
func OfController() []string {
	return []string{
		ClaimsLeft, ClaimsMade, string(v1.VirtualMachineInstanceDataVolumesReady),
		string(v1.VirtualMachineInstanceMemoryChange), string(v1.VirtualMachineInstanceVCPUChange),
		string(corev1.PodScheduled), string(v1.VirtualMachineInstanceProvisioning),
	}
}

// Mirrored reports whether a VM has a condition only as its instance has it: all but those that it has by itself, or by
// a rule of its own, and those that are a Note.
func Mirrored[T ~string](kind T) bool {
	if Note(kind) {
		return false
	}
	switch v1.VirtualMachineConditionType(kind) {
	case v1.VirtualMachineReady, v1.VirtualMachineFailure,
		v1.VirtualMachineRestartRequired, v1.VirtualMachineManualRecoveryRequired:
		return false
	}
	return true
}

// Remove takes the condition of a type out of the list.
func Remove[C Condition, T ~string](list *[]C, of T) {
	*list = slices.DeleteFunc(*list, func(c C) bool { return fieldsOf(&c).kind == string(of) })
}

// SetIf sets next when it holds, and removes the condition of its type otherwise.
func SetIf[C Condition](list *[]C, holds bool, next C, now time.Time) {
	if holds {
		Set(list, next, now)
	} else {
		Remove(list, fieldsOf(&next).kind)
	}
}

// fields are the fields of a condition that its rules are about.
type fields struct {
	kind          string
	status        corev1.ConditionStatus
	probed, since *metav1.Time
}

func fieldsOf[C Condition](c *C) fields {
	switch c := any(c).(type) {
	case *v1.KubeVirtCondition:
		return fields{string(c.Type), c.Status, &c.LastProbeTime, &c.LastTransitionTime}
	case *v1.VirtualMachineCondition:
		return fields{string(c.Type), c.Status, &c.LastProbeTime, &c.LastTransitionTime}
	case *v1.VirtualMachineInstanceCondition:
		return fields{string(c.Type), c.Status, &c.LastProbeTime, &c.LastTransitionTime}
	case *v1.VirtualMachineInstanceMigrationCondition:
		return fields{string(c.Type), c.Status, &c.LastProbeTime, &c.LastTransitionTime}
	case *v1.VirtualMachineInstanceReplicaSetCondition:
		return fields{string(c.Type), c.Status, &c.LastProbeTime, &c.LastTransitionTime}
	case *v1beta1.VirtualMachinePoolCondition:
		return fields{string(c.Type), c.Status, &c.LastProbeTime, &c.LastTransitionTime}
	case *snapshotv1beta1.Condition:
		return fields{string(c.Type), c.Status, &c.LastProbeTime, &c.LastTransitionTime}
	case *clonev1beta1.Condition:
		return fields{string(c.Type), c.Status, &c.LastProbeTime, &c.LastTransitionTime}
	case *exportv1beta1.Condition:
		return fields{string(c.Type), c.Status, &c.LastProbeTime, &c.LastTransitionTime}
	case *corev1.NodeCondition:
		return fields{string(c.Type), c.Status, &c.LastHeartbeatTime, &c.LastTransitionTime}
	case *corev1.PodCondition:
		return fields{string(c.Type), c.Status, &c.LastProbeTime, &c.LastTransitionTime}
	}
	panic("conditions: a type of the constraint is missing here")
}
