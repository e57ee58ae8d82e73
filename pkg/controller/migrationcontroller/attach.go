package migrationcontroller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// attach has the claims of the VMI's hotplugged volumes brought to the node of the migration's pod, by one pod that
// holds them all, before the VMI's nodes learn of the migration. From then on no volume is plugged or unplugged.
func (s *Step) attach(view View) {
	volumes, busy := hotplug.Moving(view.VMI)
	if len(volumes) == 0 && busy == "" {
		s.schedule(view, nil)
		return
	}
	s.phase(v1.MigrationScheduling, view.Now)
	left := scheduleTimeout - view.Now.Sub(view.Pod.CreationTimestamp.Time)
	s.RequeueAfter = min(max(left, 0), waitAgain)
	attachment := attachmentOf(view, volumes)
	switch {
	case busy != "":
		if left <= 0 {
			s.fail(view, busy+"; wait for it, or end it, before the guest moves")
		}
	case attachment == nil:
		s.Attach = volumes
	case attachment.Annotations[names.AnnotationClaims] !=
		volumemigration.PluggedFingerprint(&view.VMI.Spec, volumes):
		s.fail(view, "the volumes of the VirtualMachineInstance were changed since its attachment pod "+
			attachment.Name+" was made")
	case !life.PodStaying(attachment):
		s.fail(view, "the attachment pod "+attachment.Name+" has ended: "+ended(attachment))
	case vmicontroller.ContainerRuns(attachment):
		s.schedule(view, attachment)
	case left <= 0:
		s.fail(view, "the hotplugged volumes do not get to node "+view.Pod.Spec.NodeName+": "+
			vmicontroller.NotRunning(attachment))
	}
}

// attachmentOf returns the pod that was created to hold exactly these volumes, nil when there is none. Names and owner
// references are anybody's to write who may make pods.
func attachmentOf(view View, volumes []string) *corev1.Pod {
	purpose := hotplug.TargetAttachment(view.Migration.UID, volumes)
	at := slices.IndexFunc(view.Attachments, func(pod *corev1.Pod) bool { return view.Created[pod.UID] == purpose })
	if at < 0 {
		return nil
	}
	return view.Attachments[at]
}

// targetAttachment returns the pod that holds volumes for the migration's pod: on the claims to which disks are copied.
func targetAttachment(view View, volumes []string) *corev1.Pod {
	pod := vmicontroller.Attachment(view.VMI, volumes, view.Pod, view.Facts)
	pod.GenerateName, pod.Name = "", hotplug.TargetAttachment(view.Migration.UID, volumes)
	pod.Labels[v1.MigrationJobLabel] = string(view.Migration.UID)
	pod.Annotations = map[string]string{
		names.AnnotationClaims: volumemigration.PluggedFingerprint(&view.VMI.Spec, volumes),
	}
	return pod
}

// applyAttachments deletes and makes attachment pods.
func (r *Reconciler) applyAttachments(ctx context.Context, view View, step *Step) error {
	for _, pod := range step.DeleteAttachments {
		if pod.DeletionTimestamp != nil {
			continue
		}
		if _, err := r.writes.Delete(ctx, pod, client.GracePeriodSeconds(1)); err != nil {
			return fmt.Errorf("delete attachment pod %s: %w", pod.Name, err)
		}
	}
	pod := step.Attachment
	if pod == nil {
		return nil
	}
	if err := vmicontroller.NoteUsed(ctx, r.writes, step.Used); err != nil {
		return err
	}
	err := r.creator().CreatePod(ctx, view.VMI, pod.Name, pod)
	switch {
	case err == nil:
		r.Recorder.Eventf(view.Migration, corev1.EventTypeNormal, ReasonSuccessfulCreate,
			"Created hotplug attachment pod %s for the migration's pod", pod.Name)
	case !errors.Is(err, vmicontroller.ErrRecorded): // else the cache has not seen it
		r.Recorder.Eventf(view.Migration, corev1.EventTypeWarning, ReasonFailedCreate,
			"Error creating hotplug attachment pod: %v", err)
		return fmt.Errorf("create the migration's attachment pod: %w", err)
	}
	return nil
}
