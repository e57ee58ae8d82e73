package vmicontroller

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// Reasons of hotplugged volumes, in events and in their status; KubeVirt's words.
const (
	ReasonPVCNotReady             = "PVCNotReady"
	ReasonVolumeUnplugged         = "VolumeUnplugged"
	attachmentCreated             = "Created hotplug attachment pod %s, for volume %s"
	volumeUnpluggedMessage        = "Volume %s has been unplugged."
	messageDetaching              = "Deleting volume from guest"
	messageWaitingForAttachment   = "Waiting for attachment pod %s to run"
	messageWaitingForOldAttach    = "Waiting for attachment pod %s to end"
	messageAttachmentPodIsMissing = "The volume has no attachment pod yet"
)

// plug brings the hotplugged volumes a step further. A volume's status is written by virt-controller until its
// attachment pod runs (AttachedToNode), by virt-handler from there on, by virt-controller when it is to go (Detaching),
// and by virt-handler until the launcher's pod has released it (UnMountedFromPod). While the guest moves, everything
// waits: its volumes are being given to its next launcher.
func (s *Step) plug(view View) {
	if moving(view.VMI) {
		return
	}
	spec := &hotplug.AtSource(view.VMI).Spec
	busy := map[string]bool{} // being unplugged
	var kept []v1.VolumeStatus
	for _, status := range s.Status.VolumeStatus {
		if status.HotplugVolume == nil || !leaving(spec, &status) {
			kept = append(kept, status)
			continue
		}
		busy[status.Name] = true
		if s.unplug(view, &status) {
			kept = append(kept, status)
		}
	}
	for _, volume := range hotplug.Volumes(spec) {
		if busy[volume.Name] {
			continue
		}
		at := slices.IndexFunc(kept, func(status v1.VolumeStatus) bool { return status.Name == volume.Name })
		if at < 0 {
			kept = append(kept, v1.VolumeStatus{Name: volume.Name})
			at = len(kept) - 1
		}
		s.plugOne(view, volume, &kept[at])
	}
	s.Status.VolumeStatus = kept
	for _, pod := range notDeleted(view.Attachments) {
		if !slices.ContainsFunc(kept, func(status v1.VolumeStatus) bool { return attachedBy(&status, pod) }) &&
			spare(view, pod) {
			s.DeleteAttachments = append(s.DeleteAttachments, pod)
		}
	}
}

// moving reports a guest of which two nodes know that it moves.
func moving(vmi *v1.VirtualMachineInstance) bool {
	return migrations.UnderWay(vmi) && vmi.Status.MigrationState.TargetPod != ""
}

// spare reports whether an attachment pod to which no volume refers serves nobody: it was made, but its status could
// not be written; or the guest has left its launcher. One of a launcher to which the guest may yet move stays.
func spare(view View, attachment *corev1.Pod) bool {
	owner := metav1.GetControllerOf(attachment)
	if owner == nil {
		return true
	}
	if current := life.GuestPod(view.VMI, view.Pods); current != nil && current.UID == owner.UID {
		return true
	}
	return !slices.ContainsFunc(view.Pods, func(pod *corev1.Pod) bool {
		return pod.UID == owner.UID && life.PodStaying(pod)
	})
}

// sharers returns the other volumes that are in a volume's attachment pod, as all are that came with a migration.
func sharers(list []v1.VolumeStatus, status *v1.VolumeStatus) []*v1.VolumeStatus {
	var out []*v1.VolumeStatus
	if status.HotplugVolume == nil || status.HotplugVolume.AttachPodUID == "" {
		return nil
	}
	for i := range list {
		if other := &list[i]; other.Name != status.Name && other.HotplugVolume != nil &&
			other.HotplugVolume.AttachPodUID == status.HotplugVolume.AttachPodUID {
			out = append(out, other)
		}
	}
	return out
}

// held reports whether an attachment pod holds claims that are needed still, or whose own pods do not run yet.
func (s *Step) held(view View, status *v1.VolumeStatus) bool {
	for _, other := range s.Status.VolumeStatus {
		if other.Name == status.Name || other.HotplugVolume == nil || other.Phase == v1.HotplugVolumeUnMounted {
			continue
		}
		if attachedBy(&other, attachment(view, status)) {
			return true
		}
		if pod := attachment(view, &other); other.Phase == v1.VolumeReady && (pod == nil || !ContainerRuns(pod)) {
			return true
		}
	}
	return false
}

// leaving reports a volume that is on its way out, or must be: gone from the spec, or another's claim now.
func leaving(spec *v1.VirtualMachineInstanceSpec, status *v1.VolumeStatus) bool {
	if status.Phase == v1.HotplugVolumeDetaching || status.Phase == v1.HotplugVolumeUnMounted {
		return true
	}
	volume := hotplug.Volume(spec, status.Name)
	if volume == nil || !hotplug.Is(volume) {
		return true
	}
	info := status.PersistentVolumeClaimInfo
	return info != nil && info.ClaimName != claims.Name(volume)
}

// attachedBy reports whether a pod is the one that virt-controller made for a volume. Only the UID counts: labels
// and owners are anybody's to set who may make a pod.
func attachedBy(status *v1.VolumeStatus, pod *corev1.Pod) bool {
	return status.HotplugVolume != nil && status.HotplugVolume.AttachPodUID != "" &&
		status.HotplugVolume.AttachPodUID == pod.UID
}

func attachment(view View, status *v1.VolumeStatus) *corev1.Pod {
	for _, pod := range view.Attachments {
		if attachedBy(status, pod) {
			return pod
		}
	}
	return nil
}

// unplug takes a volume away: first from the guest and its pod, which virt-handler does, then its
// attachment pod. It reports whether the status stays.
func (s *Step) unplug(view View, status *v1.VolumeStatus) bool {
	pod := attachment(view, status)
	switch status.Phase {
	case v1.HotplugVolumeUnMounted, "", v1.VolumePending, v1.VolumeBound: // virt-handler has not got it
		if pod == nil {
			s.Events = append(s.Events,
				Event{corev1.EventTypeNormal, ReasonVolumeUnplugged, fmt.Sprintf(volumeUnpluggedMessage, status.Name)})
			return false
		}
		status.Phase = v1.HotplugVolumeUnMounted
		if pod.DeletionTimestamp == nil && !s.held(view, status) {
			s.DeleteAttachments = append(s.DeleteAttachments, pod)
		}
	case v1.HotplugVolumeDetaching:
	default:
		status.Phase, status.Reason, status.Message = v1.HotplugVolumeDetaching, "", messageDetaching
	}
	return true
}

// plugOne gives a volume its attachment pod and records the progress.
func (s *Step) plugOne(view View, volume *v1.Volume, status *v1.VolumeStatus) {
	name := claims.Name(volume)
	bound := view.Claims[name]
	if status.HotplugVolume == nil {
		status.HotplugVolume = &v1.HotplugVolumeStatus{}
	}
	if bound != nil {
		status.PersistentVolumeClaimInfo = claimInfo(bound)
	}
	pod := attachment(view, status)
	if made := view.Unnamed[volume.Name]; pod == nil && made != nil {
		pod, status.HotplugVolume.AttachPodUID = made, made.UID
	}
	if pod != nil {
		// virt-handler writes the one that it should have after a migration
		status.HotplugVolume.AttachPodName = pod.Name
	}
	early := status.Phase == "" || status.Phase == v1.VolumePending || status.Phase == v1.VolumeBound
	waiting := func(reason, message string) {
		if !early {
			return // virt-handler's
		}
		status.Phase, status.Reason, status.Message = v1.VolumePending, reason, message
		if bound != nil && bound.Status.Phase == corev1.ClaimBound {
			status.Phase = v1.VolumeBound
		}
	}
	switch {
	case pod == nil && bound == nil && view.DataVolumes[name] != nil:
		waiting(ReasonPVCNotReady, unfilled(view, name))
	case pod == nil && bound == nil:
		message := missingClaim(view, name)
		if early && status.Message != message {
			s.Events = append(s.Events, Event{corev1.EventTypeWarning, ReasonFailedPvcNotFound, message})
		}
		waiting(ReasonPVCNotReady, message)
	case pod == nil && unfilled(view, name) != "" && !wantsPod(view, name):
		waiting(ReasonPVCNotReady, unfilled(view, name))
	case pod == nil && early && uploads.Unusable(name, bound.Annotations) != "":
		message := uploads.Unusable(name, bound.Annotations)
		if status.Message != message {
			s.Events = append(s.Events, Event{corev1.EventTypeWarning, names.ReasonUploadIncomplete, message})
		}
		waiting(names.ReasonUploadIncomplete, message)
	case pod == nil && status.Phase == "":
		// Said before it is done: virt-handler writes the status at the same time when a spec changes, and a
		// pod whose name could not be written is made twice.
		waiting(hotplug.ReasonMissingAttachmentPod, messageAttachmentPodIsMissing)
	case pod == nil:
		s.CreateAttachments = append(s.CreateAttachments, volume.Name)
		waiting(hotplug.ReasonMissingAttachmentPod, messageAttachmentPodIsMissing)
	case pod.DeletionTimestamp != nil:
		waiting(hotplug.ReasonAttachmentPodNotReady, fmt.Sprintf(messageWaitingForOldAttach, pod.Name))
	case life.PodEnded(pod):
		s.DeleteAttachments = append(s.DeleteAttachments, pod)
		waiting(hotplug.ReasonAttachmentPodNotReady, fmt.Sprintf(messageWaitingForOldAttach, pod.Name))
	case !ContainerRuns(pod):
		waiting(hotplug.ReasonAttachmentPodNotReady, NotRunning(pod))
	case slices.ContainsFunc(sharers(s.Status.VolumeStatus, status),
		func(other *v1.VolumeStatus) bool { return other.Phase == v1.HotplugVolumeUnMounted }):
		// A pod of its own, so that the other volume's claim is released.
		s.CreateAttachments = append(s.CreateAttachments, volume.Name)
	case early && unfilled(view, name) != "":
		waiting(ReasonPVCNotReady, unfilled(view, name)) // The attachment pod is the one that CDI waited for.
	case early:
		status.Phase = v1.HotplugVolumeAttachedToNode
		status.Reason, status.Message = ReasonSuccessfulCreate, fmt.Sprintf(attachmentCreated, pod.Name, volume.Name)
	}
}

// ContainerRuns reports a pod whose container runs, and so has its volume.
func ContainerRuns(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses,
		func(c corev1.ContainerStatus) bool { return c.State.Running != nil })
}

// NotRunning returns the pod's own message on why it does not run.
func NotRunning(pod *corev1.Pod) string {
	if c := conditions.With(pod.Status.Conditions, corev1.PodScheduled, corev1.ConditionFalse); c != nil &&
		c.Message != "" {
		return hotplug.Unscheduled(pod.Name, c.Message)
	}
	for i := range pod.Status.ContainerStatuses {
		if w := pod.Status.ContainerStatuses[i].State.Waiting; w != nil && w.Message != "" {
			return fmt.Sprintf("attachment pod %s waits: %s: %s", pod.Name, w.Reason, w.Message)
		}
	}
	return fmt.Sprintf(messageWaitingForAttachment, pod.Name)
}
