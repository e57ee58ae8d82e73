package controller

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/controller/poolcontroller"
	"github.com/virtkit/virtkit/pkg/controller/restorecontroller"
	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/ipaddress"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// cacheOptions limits what the cache holds: thousands of VMs must fit in little memory, so it keeps of each kind only
// what a reconciler reads. Writes are patches of what differs, so that a slim object never overwrites what was left out
// of it.
func cacheOptions() cache.Options {
	installation := map[string]cache.Config{names.Namespace: {}}
	return cache.Options{
		DefaultTransform: slim,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {
				Label:     ours(),
				Transform: typed(slimPod),
			},
			&corev1.PersistentVolumeClaim{}: {Transform: typed(slimClaim)},
			&corev1.Node{}:                  {Transform: typed(slimNode)},
			&appsv1.Deployment{}: {
				Namespaces: installation,
				Transform: typed(func(d *appsv1.Deployment) {
					d.Spec.Template = corev1.PodTemplateSpec{}
				}),
			},
			&appsv1.DaemonSet{}: {
				Namespaces: installation,
				Transform: typed(func(d *appsv1.DaemonSet) {
					d.Spec.Template = corev1.PodTemplateSpec{}
				}),
			},
			&v1.KubeVirt{}: {Namespaces: installation},
			// Those that lead to virt-exportproxy.
			&networkingv1.Ingress{}: {Namespaces: installation},
			// Those of exports.
			&corev1.Service{}: {Label: labels.SelectorFromSet(labels.Set{names.LabelComponent: names.VirtExport})},
			// Those of pools.
			&appsv1.ControllerRevision{}: {Label: labelled(poolcontroller.RevisionLabel)},
			// Those of VMIs.
			&policyv1.PodDisruptionBudget{}: {Label: labelled(v1.CreatedByLabel)},
		},
	}
}

// ours selects the pods that virt-controller makes, and those of `virtctl guestfs`, which it deletes.
func ours() labels.Selector {
	requirement, err := labels.NewRequirement(v1.AppLabel, selection.In,
		[]string{
			names.VirtLauncher, names.HotplugDisk, names.ProvisioningPod, names.VirtUpload, names.VirtExport,
			names.VirtGuestfs,
		})
	if err != nil {
		panic(err) // a programming error
	}
	return labels.NewSelector().Add(*requirement)
}

// labelled selects what has a label.
func labelled(key string) labels.Selector {
	requirement, err := labels.NewRequirement(key, selection.Exists, nil)
	if err != nil {
		panic(err) // a programming error
	}
	return labels.NewSelector().Add(*requirement)
}

// slim drops what nobody reads of any kind.
func slim(obj any) (any, error) {
	if object, ok := obj.(metav1.Object); ok { // Else a tombstone, which has nothing to drop.
		object.SetManagedFields(nil)
		delete(object.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
	}
	if dv, ok := obj.(*cdiv1.DataVolume); ok {
		dv.Spec = cdiv1.DataVolumeSpec{} // what fills it is CDI's
	}
	return obj, nil
}

// typed makes a transform of one kind out of a function.
func typed[T any](change func(*T)) func(any) (any, error) {
	return func(obj any) (any, error) {
		if object, ok := obj.(*T); ok {
			change(object)
		}
		return slim(obj)
	}
}

// slimPod keeps identity, owner, node, phase, conditions and how the container fares, the networks that were asked for
// and what was got of those that keep addresses, whether its launcher ends the guest by itself, the taints that it
// tolerates, and how long a client waits for it.
func slimPod(pod *corev1.Pod) {
	pod.Labels = keep(pod.Labels, v1.AppLabel, v1.CreatedByLabel, v1.MigrationJobLabel)
	kept := []string{
		network.AnnotationNetworks, names.AnnotationExpanding, names.AnnotationClaims, ipaddress.PodAnnotation,
		names.AnnotationGuestfsWait,
	}
	if pod.Annotations[ipaddress.PodAnnotation] != "" {
		kept = append(kept, network.AnnotationStatus) // is long
	}
	pod.Annotations = keep(pod.Annotations, kept...)
	var containers []corev1.Container
	if len(pod.Spec.Containers) > 0 {
		containers = []corev1.Container{{
			Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image,
			Args: vmicontroller.FenceArgs(pod.Spec.Containers[0].Args),
		}}
	}
	pod.Spec = corev1.PodSpec{
		NodeName: pod.Spec.NodeName, Containers: containers,
		ReadinessGates: pod.Spec.ReadinessGates, Tolerations: pod.Spec.Tolerations,
	}
	status := corev1.PodStatus{
		Phase: pod.Status.Phase, Reason: pod.Status.Reason, Message: pod.Status.Message, QOSClass: pod.Status.QOSClass,
	}
	for _, condition := range pod.Status.Conditions {
		switch condition.Type {
		case corev1.PodScheduled, vmicontroller.Gate, corev1.PodReadyToStartContainers:
			status.Conditions = append(status.Conditions, condition)
		}
	}
	for _, container := range pod.Status.ContainerStatuses {
		status.ContainerStatuses = append(status.ContainerStatuses,
			corev1.ContainerStatus{Name: container.Name, State: container.State})
	}
	for _, container := range pod.Status.InitContainerStatuses {
		if container.State.Waiting != nil { // all that is asked of those beside the guest's
			status.InitContainerStatuses = append(status.InitContainerStatuses,
				corev1.ContainerStatus{Name: container.Name, State: container.State})
		}
	}
	pod.Status = status
}

// slimClaim keeps what decides how a claim is mounted and whether it is bound, how far its expansion is, of which VM it
// was restored, whether an image was uploaded to it, and for which migration it was made.
func slimClaim(claim *corev1.PersistentVolumeClaim) {
	claim.Labels, claim.Annotations = keep(claim.Labels, vmstate.Prefix, v1.MigrationNameLabel,
		restorecontroller.SourceLabel, restorecontroller.NamespaceLabel, volumemigration.CopiedByLabel,
		volumemigration.CopiedVolumeLabel),
		keep(claim.Annotations, uploads.AnnotationRequest, uploads.AnnotationState, uploads.AnnotationImage,
			uploads.AnnotationMade, claims.BindAtOnce)
	claim.Spec = corev1.PersistentVolumeClaimSpec{
		AccessModes: claim.Spec.AccessModes, VolumeMode: claim.Spec.VolumeMode,
		Resources: claim.Spec.Resources, StorageClassName: claim.Spec.StorageClassName,
	}
	claim.Status = corev1.PersistentVolumeClaimStatus{
		Phase: claim.Status.Phase, Capacity: claim.Status.Capacity, Conditions: claim.Status.Conditions,
		AllocatedResourceStatuses: claim.Status.AllocatedResourceStatuses,
	}
}

// slimNode keeps virt-handler's marks, taints, whether the node answers, and whether it has KVM.
func slimNode(node *corev1.Node) {
	kept := keep(node.Labels, v1.NodeSchedulable)
	for key, value := range node.Labels {
		for _, prefix := range []string{
			v1.HostModelCPULabel, v1.HostModelRequiredFeaturesLabel, v1.CPUTimerLabel,
			names.LabelTSCScheduling,
		} {
			if strings.HasPrefix(key, prefix) {
				kept[key] = value
			}
		}
	}
	node.Labels = kept
	node.Annotations = keep(node.Annotations, v1.VirtHandlerHeartbeat)
	node.Spec = corev1.NodeSpec{Taints: node.Spec.Taints}
	status := corev1.NodeStatus{}
	if quantity, ok := node.Status.Allocatable[names.ResourceKVM]; ok {
		status.Allocatable = corev1.ResourceList{names.ResourceKVM: quantity}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			condition.LastHeartbeatTime = metav1.Time{}
			status.Conditions = append(status.Conditions, condition)
		}
	}
	node.Status = status
}

func keep(from map[string]string, keys ...string) map[string]string {
	out := make(map[string]string, len(keys))
	for _, key := range keys {
		if value, ok := from[key]; ok {
			out[key] = value
		}
	}
	return out
}
