package claims

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// State says how far a claim is from being a disk.
type State int

// The states.
const (
	// Populated means ready: nobody fills it, or the filling has finished.
	Populated State = iota
	// Claimable is filled as soon as a pod is to use it, and bound only then: the pod may be made, and waits.
	Claimable
	// Unclaimed waits for a pod to use it and is filled after that, so that pod must not be the guest's.
	Unclaimed
	// Filling is under way.
	Filling
	// Failed will not become a disk by itself.
	Failed
)

// StateOf returns how far a DataVolume is.
func StateOf(dv *cdiv1.DataVolume) State {
	switch dv.Status.Phase {
	case cdiv1.Succeeded:
		return Populated
	case cdiv1.PendingPopulation:
		return Claimable
	case cdiv1.WaitForFirstConsumer:
		return Unclaimed
	case cdiv1.Failed:
		return Failed
	}
	return Filling
}

// StateOfClaim returns the state of a claim, given the DataVolume of its name, nil when there is none. A claim that no
// DataVolume owns is filled by others, who have done so.
func StateOfClaim(claim *corev1.PersistentVolumeClaim, dv *cdiv1.DataVolume) State {
	if !Owned(claim) {
		return Populated
	}
	if dv == nil {
		return Filling // CDI has not shown it yet, or both are about to go.
	}
	return StateOf(dv)
}

// BindAtOnce is CDI's annotation of a DataVolume, and of its claim, that is to be filled before any pod uses it.
const BindAtOnce = "cdi.kubevirt.io/storage.bind.immediate.requested"

// BindsAtOnce reports a claim that CDI binds, whatever its StorageClass says.
func BindsAtOnce(claim *corev1.PersistentVolumeClaim) bool {
	_, asked := claim.Annotations[BindAtOnce]
	return asked
}

// Owned reports whether a DataVolume fills a claim.
func Owned(claim *corev1.PersistentVolumeClaim) bool {
	owner := metav1.GetControllerOfNoCopy(claim)
	return owner != nil && owner.Kind == "DataVolume"
}

// Trouble returns why a DataVolume makes no progress, in CDI's words, or "" when it does.
func Trouble(dv *cdiv1.DataVolume) string {
	bound, running := condition(dv, cdiv1.DataVolumeBound), condition(dv, cdiv1.DataVolumeRunning)
	switch {
	case dv.Status.Phase == cdiv1.Succeeded:
		return ""
	case running != nil && running.Status == corev1.ConditionFalse &&
		(running.Reason == "Error" || running.Reason == "ImagePullFailed"):
		return running.Message
	case bound != nil && bound.Status != corev1.ConditionTrue && bound.Reason == "ErrExceededQuota":
		return bound.Message
	case dv.Status.Phase == cdiv1.Failed && running != nil && running.Message != "":
		return running.Message
	case dv.Status.Phase == cdiv1.Failed:
		return "CDI could not fill it"
	}
	return ""
}

// Unfilled returns why the claim of a DataVolume, by its name, is no disk yet; dv is nil when it is not there.
func Unfilled(name string, dv *cdiv1.DataVolume) string {
	if dv == nil {
		return fmt.Sprintf("DataVolume %q fills PersistentVolumeClaim %q, and is not there", name, name)
	}
	if trouble := Trouble(dv); trouble != "" {
		return fmt.Sprintf("DataVolume %q: %s", name, trouble)
	}
	return fmt.Sprintf("DataVolume %q is %s", name, Phase(dv)) // How many percent is not worth a write each.
}

// Provisioning reports whether CDI works at a DataVolume. One that waits for its first pod does not count unless it has
// a volume already.
func Provisioning(dv *cdiv1.DataVolume) bool {
	switch StateOf(dv) {
	case Populated, Claimable:
		return false
	case Unclaimed:
		bound := condition(dv, cdiv1.DataVolumeBound)
		return bound != nil && bound.Status == corev1.ConditionTrue
	}
	return true
}

// Phase returns CDI's phase of a DataVolume.
func Phase(dv *cdiv1.DataVolume) cdiv1.DataVolumePhase { return cmp.Or(dv.Status.Phase, cdiv1.Pending) }

func condition(dv *cdiv1.DataVolume, conditionType cdiv1.DataVolumeConditionType) *cdiv1.DataVolumeCondition {
	for i := range dv.Status.Conditions {
		if dv.Status.Conditions[i].Type == conditionType {
			return &dv.Status.Conditions[i]
		}
	}
	return nil
}
