// Package exportcontroller is the reconciler VirtualMachineExport → Pod. Its inputs are exports and their sources: a VM
// that is stopped, a snapshot, or a claim that nobody uses. Its outputs are, for each export, a pod that serves the
// claims (pkg/exporter), a Service that leads to it, the Secrets of its certificate, token and manifests, and,
// for a snapshot, claims that are restored from it for as long as the export lives. All of them belong to the export
// and are deleted with it; an export is deleted when its time is over.
//
// The pod is in the tenant's namespace, which anybody there may change. So the reconciler reads no Secret, acts only on
// objects that the export controls by its UID, and gives the pod no rights; the certificate is signed by an authority
// that signs nothing else.
package exportcontroller

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/export/v1beta1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

const (
	// again is the delay before a write that the API server refused is tried again, and before the next look for a pod
	// that uses a claim: no event says that it is gone.
	again = 10 * time.Second
	// watchful is the interval of the looks for another pod that uses what is being exported.
	watchful = 15 * time.Second
)

// Claim is one claim of an export, with what is known about it.
type Claim struct {
	exports.Volume
	// Claim is nil when it is not there.
	Claim *corev1.PersistentVolumeClaim
	// Unready is the reason why it is not a complete disk yet, or "" when it is one.
	Unready string
	// User is another pod that uses it; empty for none.
	User string
	// Backup is set for a claim of a snapshot; RestoreSize is the least size of a claim made from its VolumeSnapshot.
	Backup *snapshotv1beta1.VolumeBackup
	// Restorable says that the VolumeSnapshot is there and ready.
	Restorable  bool
	RestoreSize *resource.Quantity
}

// View is the input of Next.
type View struct {
	Export *v1beta1.VirtualMachineExport
	Now    time.Time

	// VM is the source, or the VM of the snapshot as it was then; nil when there is none.
	VM *v1.VirtualMachine
	// Running says that a VMI of the VM has a guest.
	Running bool
	// Snapshot and Content are set for an export of a snapshot.
	Snapshot *snapshotv1beta1.VirtualMachineSnapshot
	Content  *snapshotv1beta1.VirtualMachineSnapshotContent
	// Served says that the cluster has VolumeSnapshots.
	Served bool
	Claims []Claim

	// Pod and Service have the export's names. They are ours if the export controls them.
	Pod     *corev1.Pod
	Service *corev1.Service

	// Entrance is what leads to exports from outside of the cluster; nil for nothing. Unsettled says that it is not
	// known now, and that the link stays as it is.
	Entrance  *Entrance
	Unsettled bool

	// Token is the token of an export that is to get one, Issued the certificate of a Service that has none.
	Token  string
	Issued *Issued
	// Facts hold what the pod depends on besides, but for the names of Secrets.
	Facts Facts
}

// Event is one to be recorded.
type Event struct{ Type, Reason, Message string }

// Step holds what to do; the zero Step does nothing.
type Step struct {
	// DeleteExport asks for the end of the export.
	DeleteExport bool
	// CreateToken is the Secret of a token that is to be made.
	CreateToken *corev1.Secret
	// CreateClaims are to be restored.
	CreateClaims  []*corev1.PersistentVolumeClaim
	CreateService *corev1.Service
	// CreateIdentity asks for the certificate of the Service, which is View.Issued.
	CreateIdentity bool
	// CreateManifests is the Secret of the manifests that the pod serves.
	CreateManifests *corev1.Secret
	CreatePod       *corev1.Pod
	// Failed is why the pod cannot be planned; it is tried again.
	Failed error
	// Volumes are the volumes of the pod.
	Volumes   []exports.Volume
	DeletePod bool
	Status    *v1beta1.VirtualMachineExportStatus
	Events    []Event
	frame.Requeue
}

// Events; KubeVirt's reasons, but for the last.
const (
	eventPodCreated  = "ExporterPodCreated"
	eventPodEnded    = "ExporterPodFailedOrCompleted"
	eventPaused      = "ExportPaused"
	eventCertificate = "ExternalCertificateTooLarge"
)

// Next decides.
func Next(v View) Step {
	left := exports.Expiration(v.Export).Sub(v.Now)
	if left <= 0 {
		return Step{DeleteExport: true}
	}
	step := Step{Status: v.initial()}
	step.RequeueAfter = left
	if v.Export.Spec.TokenSecretRef != nil && *v.Export.Spec.TokenSecretRef != "" {
		step.Status.TokenSecretRef = v.Export.Spec.TokenSecretRef
	}
	if v.VM != nil {
		step.Status.VirtualMachineName = new(v.VM.Name)
	}
	if !v.provide(&step) {
		v.pause(&step)
		return step
	}
	v.serve(&step)
	return step
}

// initial returns the status of an export of which nothing is there yet: all else is found anew each time.
func (v *View) initial() *v1beta1.VirtualMachineExportStatus {
	status := &v1beta1.VirtualMachineExportStatus{}
	if v.Export.Status != nil {
		status = v.Export.Status.DeepCopy()
	} else {
		v.set(status, v1beta1.ConditionPVC, corev1.ConditionFalse, exports.ReasonUnknown, "")
	}
	expires := metav1.NewTime(exports.Expiration(v.Export))
	status.Phase, status.Links, status.TTLExpirationTime = v1beta1.Pending, nil, &expires
	return status
}

func (v *View) set(
	status *v1beta1.VirtualMachineExportStatus, of v1beta1.ConditionType, is corev1.ConditionStatus,
	reason, message string,
) {
	conditions.Set(&status.Conditions, v1beta1.Condition{Type: of, Status: is, Reason: reason, Message: message}, v.Now)
}

// wait records why an export is not ready.
func (v *View) wait(step *Step, reason, format string, arguments ...any) bool {
	v.set(step.Status, v1beta1.ConditionReady, corev1.ConditionFalse, reason, fmt.Sprintf(format, arguments...))
	return false
}

// pause ends the pod of an export whose source is not to be read now.
func (v *View) pause(step *Step) {
	if v.ours(v.Pod) && v.Pod.DeletionTimestamp == nil {
		step.DeletePod = true
		ready := conditions.Find(step.Status.Conditions, v1beta1.ConditionReady)
		step.Events = append(step.Events, Event{corev1.EventTypeWarning, eventPaused, ready.Message})
	}
}

// ours reports whether the export controls an object, which may be nil.
func (v *View) ours(object metav1.Object) bool {
	switch object := object.(type) {
	case *corev1.Pod:
		return object != nil && metav1.IsControlledBy(object, v.Export)
	case *corev1.Service:
		return object != nil && metav1.IsControlledBy(object, v.Export)
	case *corev1.PersistentVolumeClaim:
		return object != nil && metav1.IsControlledBy(object, v.Export)
	}
	return false
}
