package vmicontroller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// attachmentGrace is the termination grace period of an attachment pod's container, seconds. The container ends at
// once; zero would have the API server forget the pod before the kubelet has released the claim.
const attachmentGrace = 1

// waitForEnd is the script of an attachment pod: it does nothing, until SIGTERM.
const waitForEnd = `trap 'exit 0' TERM; while :; do sleep 86400 & wait $!; done`

// Attachment returns the pod that holds the claims of hotplugged volumes on the node of a launcher pod, so that the
// kubelet attaches and mounts them there: the claims that vmi names, which is hotplug.AtSource where the guest is,
// and the VMI itself at the target of a migration. It passes Pod Security `restricted`. It goes through the scheduler,
// which binds a claim that waits for its first consumer.
func Attachment(vmi *v1.VirtualMachineInstance, volumes []string, launcher *corev1.Pod, facts Facts) *corev1.Pod {
	container := corev1.Container{
		Name:            names.HotplugDisk,
		Image:           facts.Image,
		ImagePullPolicy: facts.ImagePullPolicy,
		Command:         []string{"/usr/bin/busybox", "sh", "-c", waitForEnd},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse("1m"),
				corev1.ResourceMemory: resource.MustParse("2Mi"),
			},
			Limits: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse("100m"),
				corev1.ResourceMemory: resource.MustParse("32Mi"),
			},
		},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			ReadOnlyRootFilesystem:   new(true),
		},
	}
	if given := facts.Config.Support.Attachment; given != nil {
		container.Resources = *given.DeepCopy()
	}
	if facts.Config.ImagePullPolicy != "" {
		container.ImagePullPolicy = facts.Config.ImagePullPolicy
	}
	var inPod []corev1.Volume
	for i, volume := range volumes {
		source, name := claims.Of(hotplug.Volume(&vmi.Spec, volume)).PersistentVolumeClaimVolumeSource, "hotplug"
		if i > 0 {
			name += "-" + strconv.Itoa(i)
		}
		inPod = append(inPod,
			corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &source}})
		if bound := facts.Claims[source.ClaimName]; bound != nil && isBlock(bound) {
			container.VolumeDevices = append(container.VolumeDevices,
				corev1.VolumeDevice{Name: name, DevicePath: path.Join(names.BlockDevicesDir, volume)})
		} else {
			container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{
				Name:      name,
				MountPath: path.Join(names.AttachmentDir, volume), ReadOnly: source.ReadOnly,
			})
		}
	}
	owner := *metav1.NewControllerRef(launcher, corev1.SchemeGroupVersion.WithKind("Pod"))
	owner.BlockOwnerDeletion = nil // it would take a right on pods/finalizers
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName:    names.HotplugPodPrefix,
			Namespace:       vmi.Namespace,
			Labels:          map[string]string{v1.AppLabel: names.HotplugDisk},
			OwnerReferences: []metav1.OwnerReference{owner},
		},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(attachmentGrace)),
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			SecurityContext:               securityContext(),
			Affinity:                      onNode(launcher.Spec.NodeName),
			Tolerations:                   copyAll(launcher.Spec.Tolerations), // the VMI may have others since
			PriorityClassName:             vmi.Spec.PriorityClassName,
			Containers:                    []corev1.Container{container},
			Volumes:                       inPod,
		},
	}
}

// onNode pins a pod to a node.
func onNode(node string) *corev1.Affinity {
	there := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
		{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
	}}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{there},
		},
	}}
}

// ofAttachment returns the VMI that an attachment pod belongs to.
func (r *Reconciler) ofAttachment(ctx context.Context, pod client.Object) []reconcile.Request {
	owner := life.LauncherOf(pod)
	if owner == nil {
		return nil
	}
	var launcher corev1.Pod
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: pod.GetNamespace(), Name: owner.Name}, &launcher)
	if err != nil {
		if !apierrors.IsNotFound(err) {
			ctrl.LoggerFrom(ctx).Error(err, "get launcher pod", "pod", owner.Name)
		}
		return nil
	}
	vmi := life.InstanceOf(&launcher)
	if vmi == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: pod.GetNamespace(), Name: vmi.Name}}}
}

// Attachments returns the attachment pods that a launcher pod owns.
func Attachments(ctx context.Context, from client.Reader, namespace string, launcher types.UID) ([]*corev1.Pod, error) {
	var pods corev1.PodList
	if err := from.List(ctx, &pods, client.InNamespace(namespace),
		client.MatchingFields{AttachmentsByPod: string(launcher)}); err != nil {
		return nil, fmt.Errorf("list attachment pods: %w", err)
	}
	out := make([]*corev1.Pod, len(pods.Items))
	for i := range pods.Items {
		out[i] = &pods.Items[i]
	}
	return out, nil
}

// lookAtAttachments finds the VMI's attachment pods.
func (r *Reconciler) lookAtAttachments(ctx context.Context, view *View) error {
	vmi := view.VMI
	if !Scheduled(vmi) {
		return nil
	}
	launchers := maps.Clone(vmi.Status.ActivePods)
	if launchers == nil {
		launchers = map[types.UID]string{}
	}
	for _, pod := range own(*view) {
		launchers[pod.UID] = pod.Spec.NodeName // also one that the guest has left
	}
	for launcher := range launchers {
		pods, err := Attachments(ctx, r.Client, vmi.Namespace, launcher)
		if err != nil {
			return err
		}
		view.Attachments = append(view.Attachments, pods...)
	}
	if err := r.lookAtUnnamed(ctx, view); err != nil {
		return err
	}
	// The cache may not have seen yet what was made a moment ago.
	for i := range vmi.Status.VolumeStatus {
		status := &vmi.Status.VolumeStatus[i]
		if status.HotplugVolume == nil || status.HotplugVolume.AttachPodUID == "" || attachment(*view, status) != nil {
			continue
		}
		pod := &corev1.Pod{}
		err := r.Live.Get(ctx, types.NamespacedName{Namespace: vmi.Namespace, Name: status.HotplugVolume.AttachPodName},
			pod)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return fmt.Errorf("get attachment pod %s: %w", status.HotplugVolume.AttachPodName, err)
		case attachedBy(status, pod):
			view.Attachments = append(view.Attachments, pod)
		}
	}
	return nil
}

// lookAtUnnamed finds the attachment pods that were made in a pass whose status could not be written.
func (r *Reconciler) lookAtUnnamed(ctx context.Context, view *View) error {
	made, ok := r.unnamed.Load(view.VMI.UID)
	guestPod := life.GuestPod(view.VMI, view.Pods)
	if !ok || guestPod == nil {
		return nil
	}
	for volume, pod := range made.(map[string]*corev1.Pod) {
		current := &corev1.Pod{}
		err := r.Live.Get(ctx, client.ObjectKeyFromObject(pod), current)
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return fmt.Errorf("get attachment pod %s: %w", pod.Name, err)
		case current.UID != pod.UID || !life.PodStaying(current) || !OwnedBy(current, guestPod.UID):
			continue
		}
		if view.Unnamed == nil {
			view.Unnamed = map[string]*corev1.Pod{}
		}
		view.Unnamed[volume] = current
	}
	return nil
}

// noteUnnamed remembers an attachment pod until the status that names it is written. One VMI is worked on by one
// goroutine.
func (r *Reconciler) noteUnnamed(vmi types.UID, volume string, pod *corev1.Pod) {
	made, _ := r.unnamed.LoadOrStore(vmi, map[string]*corev1.Pod{})
	made.(map[string]*corev1.Pod)[volume] = pod
}

// applyAttachments deletes and makes attachment pods. It makes none where it was not noted that their claims are used.
func (r *Reconciler) applyAttachments(ctx context.Context, view View, step *Step, unnoted error) error {
	var errs []error
	for _, pod := range step.DeleteAttachments {
		deleted, err := r.writes.Delete(ctx, pod, client.GracePeriodSeconds(attachmentGrace))
		if err != nil {
			errs = append(errs, fmt.Errorf("delete attachment pod %s: %w", pod.Name, err))
		}
		if deleted {
			r.Recorder.Eventf(view.VMI, corev1.EventTypeNormal, ReasonSuccessfulDelete,
				"Deleted hotplug attachment pod %s", pod.Name)
		}
	}
	for _, planned := range step.Attachments {
		err := unnoted
		if err == nil {
			err = r.writes.Create(ctx, planned.Pod)
		}
		if err == nil {
			r.noteUnnamed(view.VMI.UID, planned.For, planned.Pod)
		}
		if err = step.attached(planned.For, planned.Pod, err); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
