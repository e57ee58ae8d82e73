// Package exportcontroller is the reconciler VirtualMachineExport → Pod. Its inputs are exports and their sources: a VM
// that is stopped, a snapshot, or a claim that nobody uses. Its outputs are, for each export, a pod that serves the
// claims (pkg/exporter), a Service that leads to it, the Secrets of its certificate, token and manifests, and, for a
// snapshot, claims that are restored from it for as long as the export lives. All of them belong to the export and are
// deleted with it; an export is deleted when its time is over.
//
// The pod is in the tenant's namespace, which anybody there may change. So the reconciler reads no Secret, acts only on
// objects that the export controls by its UID, and gives the pod no rights; the certificate is signed by an authority
// that signs nothing else.
package exportcontroller

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/export/v1beta1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/frame"
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
}

// Event is one to be recorded.
type Event struct{ Type, Reason, Message string }

// Step holds what to do; the zero Step does nothing.
type Step struct {
	// DeleteExport asks for the end of the export.
	DeleteExport bool
	// CreateToken is the name of the Secret of a token that is to be made.
	CreateToken string
	// CreateClaims are to be restored.
	CreateClaims []*corev1.PersistentVolumeClaim
	// CreateService, CreateIdentity and CreatePod ask for these; the identity is the Service's certificate.
	CreateService, CreateIdentity, CreatePod bool
	// Volumes are the volumes of the pod.
	Volumes   []exports.Volume
	DeletePod bool
	Status    *v1beta1.VirtualMachineExportStatus
	Events    []Event
	frame.Requeue
}

// Events; KubeVirt's reasons.
const (
	eventPodCreated = "ExporterPodCreated"
	eventPodEnded   = "ExporterPodFailedOrCompleted"
	eventPaused     = "ExportPaused"
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

// provide sees that the claims are there and may be read. It says in the status why they are not.
func (v *View) provide(step *Step) bool {
	switch exports.SourceKind(&v.Export.Spec.Source) {
	case exports.KindVM:
		return v.provideVM(step)
	case exports.KindSnapshot:
		return v.provideSnapshot(step)
	case exports.KindClaim:
		return v.provideClaim(step)
	}
	step.Status.Phase = v1beta1.Skipped
	source := v.Export.Spec.Source
	return v.wait(step, exports.ReasonUnknown, "%s %s is nothing that can be exported", source.Kind, source.Name)
}

func (v *View) provideVM(step *Step) bool {
	name := v.Export.Namespace + "/" + v.Export.Spec.Source.Name
	switch {
	case v.VM == nil:
		return v.wait(step, exports.ReasonVMNotFound, "Virtual Machine %s not found", name)
	case len(v.Claims) == 0:
		step.Status.Phase = v1beta1.Skipped
		return v.wait(step, exports.ReasonNoVolumes, "Virtual Machine %s has no volumes", name)
	}
	v.sayBound(step)
	if unready := v.unready(); unready != "" {
		step.RequeueAfter = min(step.RequeueAfter, again)
		return v.wait(step, exports.ReasonNotPopulated, "Not all volumes in the Virtual Machine %s are populated: %s",
			name, unready)
	}
	if v.Running {
		return v.wait(step, exports.ReasonInUse, "Virtual Machine %s is running", name)
	}
	return v.unused(step)
}

func (v *View) provideClaim(step *Step) bool {
	name := v.Export.Namespace + "/" + v.Export.Spec.Source.Name
	if len(v.Claims) == 0 || v.Claims[0].Claim == nil {
		v.set(step.Status, v1beta1.ConditionPVC, corev1.ConditionFalse, exports.ReasonClaimNotFound,
			fmt.Sprintf("PersistentVolumeClaim %s not found", name))
		return v.wait(step, exports.ReasonInitializing, "")
	}
	v.sayBound(step)
	if unready := v.unready(); unready != "" {
		step.RequeueAfter = min(step.RequeueAfter, again)
		return v.wait(step, exports.ReasonClaimPending, "PersistentVolumeClaim %s is not populated: %s", name, unready)
	}
	return v.unused(step)
}

// unready returns why a claim is not a complete disk, or "" when all are.
func (v *View) unready() string {
	for i := range v.Claims {
		claim := &v.Claims[i]
		switch {
		case claim.Claim == nil:
			return fmt.Sprintf("PersistentVolumeClaim %s is not there", claim.Volume.Claim)
		case claim.Claim.DeletionTimestamp != nil:
			return fmt.Sprintf("PersistentVolumeClaim %s is being deleted", claim.Volume.Claim)
		case claim.Unready != "":
			return claim.Unready
		case claim.Claim.Status.Phase != corev1.ClaimBound:
			return fmt.Sprintf("PersistentVolumeClaim %s is not bound", claim.Volume.Claim)
		}
	}
	return ""
}

// unused waits for other pods that use the claims, and looks for new ones from time to time.
func (v *View) unused(step *Step) bool {
	for i := range v.Claims {
		if user := v.Claims[i].User; user != "" {
			step.RequeueAfter = min(step.RequeueAfter, again)
			return v.wait(step, exports.ReasonInUse, "PersistentVolumeClaim %s/%s is in use by pod %s",
				v.Export.Namespace, v.Claims[i].Volume.Claim, user)
		}
	}
	step.RequeueAfter = min(step.RequeueAfter, watchful)
	return true
}

// sayBound sets the condition about the claims, which is the condition of the worst claim.
func (v *View) sayBound(step *Step) {
	is, reason := corev1.ConditionTrue, exports.ReasonClaimBound
	for i := range v.Claims {
		claim := v.Claims[i].Claim
		switch {
		case claim == nil:
			is, reason = corev1.ConditionFalse, exports.ReasonClaimNotFound
		case claim.Status.Phase == corev1.ClaimLost:
			is, reason = corev1.ConditionFalse, exports.ReasonUnknown
		case claim.Status.Phase != corev1.ClaimBound && is == corev1.ConditionTrue:
			is, reason = corev1.ConditionFalse, exports.ReasonClaimPending
		}
	}
	v.set(step.Status, v1beta1.ConditionPVC, is, reason, "")
}

func (v *View) provideSnapshot(step *Step) bool {
	name := v.Export.Namespace + "/" + v.Export.Spec.Source.Name
	created := func(reason, format string, arguments ...any) bool {
		message := fmt.Sprintf(format, arguments...)
		v.set(step.Status, v1beta1.ConditionVolumesCreated, corev1.ConditionFalse, reason, message)
		return v.wait(step, exports.ReasonInitializing, "%s", message)
	}
	switch {
	case v.Snapshot == nil:
		created(exports.ReasonNoVolumeSnapshot, "VirtualMachineSnapshot %s not found", name)
		return v.wait(step, exports.ReasonSnapshotNotFound, "VirtualMachineSnapshot %s not found", name)
	case !readyToUse(v.Snapshot) || v.Content == nil:
		return created(exports.ReasonNotAllClaimsCreated, "VirtualMachineSnapshot %s is not ready to use", name)
	case len(v.Claims) == 0:
		step.Status.Phase = v1beta1.Skipped
		return created(exports.ReasonNoVolumeSnapshot,
			"VirtualMachineSnapshot %s does not contain any volume snapshots", name)
	case !v.Served:
		return created(exports.ReasonNotAllClaimsCreated, "the cluster has no VolumeSnapshots")
	}
	bound := true
	for i := range v.Claims {
		claim := &v.Claims[i]
		switch {
		case claim.Claim == nil && !claim.Restorable:
			return created(exports.ReasonNotAllClaimsCreated, "the VolumeSnapshot of volume %s is not there",
				claim.Backup.VolumeName)
		case claim.Claim == nil:
			step.CreateClaims = append(step.CreateClaims, v.restored(claim))
			bound = false
		case !v.ours(claim.Claim):
			step.CreateClaims = nil
			return created(exports.ReasonNotAllClaimsCreated,
				"PersistentVolumeClaim %s is there and not of this export: delete it, or make an export of another "+
					"name",
				claim.Volume.Claim)
		case claim.Claim.DeletionTimestamp != nil:
			return created(exports.ReasonNotAllClaimsCreated, "PersistentVolumeClaim %s is being deleted",
				claim.Volume.Claim)
		case claim.Claim.Status.Phase != corev1.ClaimBound:
			bound = false
		}
	}
	if bound {
		v.set(step.Status, v1beta1.ConditionVolumesCreated, corev1.ConditionTrue, exports.ReasonAllClaimsReady, "")
	} else {
		v.set(step.Status, v1beta1.ConditionVolumesCreated, corev1.ConditionFalse, exports.ReasonNotAllClaimsReady,
			"Not all PVCs are ready")
	}
	return true // a claim may be bound only when the pod is to use it
}

func readyToUse(snapshot *snapshotv1beta1.VirtualMachineSnapshot) bool {
	return snapshot.Status != nil && snapshot.Status.ReadyToUse != nil && *snapshot.Status.ReadyToUse
}

// serve sees that the pod runs, and says where.
func (v *View) serve(step *Step) {
	for i := range v.Claims {
		step.Volumes = append(step.Volumes, v.Claims[i].Volume)
	}
	slices.SortFunc(step.Volumes, func(a, b exports.Volume) int { return cmp.Compare(a.Name, b.Name) })
	status := step.Status
	if status.TokenSecretRef == nil {
		step.CreateToken = exports.TokenSecret(v.Export)
		status.TokenSecretRef = &step.CreateToken
	}
	identity := identityOf(v.Service)
	switch {
	case v.Service == nil:
		step.CreateService = true
	case !v.ours(v.Service):
		step.RequeueAfter = min(step.RequeueAfter, again)
		v.wait(step, exports.ReasonRefused, "Service %s is there and not of this export: delete it, or make an export "+
			"of another name", v.Service.Name)
		return
	case v.Service.DeletionTimestamp != nil:
		step.RequeueAfter = min(step.RequeueAfter, again)
		v.wait(step, exports.ReasonInitializing, "the Service is being deleted")
		return
	case identity == nil:
		step.CreateIdentity = true
	}
	status.ServiceName = exports.Name(v.Export.Name)
	if identity == nil {
		v.wait(step, exports.ReasonInitializing, "")
		return
	}
	v.servePod(step, identity)
}

func (v *View) servePod(step *Step, identity *identity) {
	status, pod := step.Status, v.Pod
	switch {
	case pod == nil:
		step.CreatePod = true
		step.Events = append(step.Events, Event{
			corev1.EventTypeNormal, eventPodCreated,
			fmt.Sprintf("Created exporter pod %s/%s", v.Export.Namespace, exports.Name(v.Export.Name)),
		})
		v.wait(step, exports.ReasonPodPending, "")
	case !v.ours(pod):
		step.RequeueAfter = min(step.RequeueAfter, again)
		v.wait(step, exports.ReasonRefused, "Pod %s is there and not of this export: delete it, or make an export of "+
			"another name", pod.Name)
	case pod.DeletionTimestamp != nil:
		v.wait(step, exports.ReasonPodPending, "the pod before is ending")
	case pod.Status.Phase == corev1.PodSucceeded:
		status.Phase = v1beta1.Terminated
		v.wait(step, exports.ReasonPodCompleted, "")
	case pod.Status.Phase == corev1.PodFailed:
		// It was evicted, or its node is gone.
		step.DeletePod = true
		reason := strings.TrimSpace(pod.Status.Reason + " " + pod.Status.Message)
		step.Events = append(step.Events, Event{
			corev1.EventTypeWarning, eventPodEnded,
			fmt.Sprintf("Exporter pod %s/%s has failed: %s", pod.Namespace, pod.Name, reason),
		})
		v.wait(step, exports.ReasonPodPending, "the pod has failed (%s), another one is made", reason)
	case isReady(pod):
		status.Phase = v1beta1.Ready
		v.set(status, v1beta1.ConditionReady, corev1.ConditionTrue, exports.ReasonPodReady, "")
		status.Links = &v1beta1.VirtualMachineExportLinks{Internal: exports.Links(
			exports.Host(v.Export.Namespace, v.Export.Name), identity.Certificate, step.Volumes, v.VM != nil)}
	default:
		v.wait(step, exports.ReasonPodPending, "%s", v.waits())
	}
}

func isReady(pod *corev1.Pod) bool {
	return conditions.With(pod.Status.Conditions, corev1.PodReady, corev1.ConditionTrue) != nil
}

// waits returns why the pod does not serve yet, or "" when no reason is known.
func (v *View) waits() string {
	scheduled := conditions.Find(v.Pod.Status.Conditions, corev1.PodScheduled)
	if scheduled == nil || scheduled.Status != corev1.ConditionTrue {
		if scheduled == nil || scheduled.Message == "" {
			return ""
		}
		return "the pod waits for a node: " + scheduled.Message
	}
	for i := range v.Pod.Status.ContainerStatuses {
		state := &v.Pod.Status.ContainerStatuses[i].State
		switch {
		case state.Waiting != nil && state.Waiting.Message != "":
			return fmt.Sprintf("the pod does not start (%s): %s", state.Waiting.Reason, state.Waiting.Message)
		case state.Waiting != nil && v.Export.Spec.TokenSecretRef != nil:
			return fmt.Sprintf("the pod starts once its volumes and Secret %s are there", *v.Export.Spec.TokenSecretRef)
		}
	}
	return ""
}
