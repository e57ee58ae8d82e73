package handler

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

// newScheme knows the two kinds that virt-handler reads.
func newScheme() *kruntime.Scheme {
	scheme := kruntime.NewScheme()
	for _, add := range []func(*kruntime.Scheme) error{corev1.AddToScheme, v1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // a programming error: two types of one name
		}
	}
	return scheme
}

// openCaches makes a cache of the VMIs and launcher pods of the node, without what nobody reads, one of the
// VMIs that are to come to it, and a client that reads past them.
func openCaches(config *rest.Config, nodeName string) (store, incoming cache.Cache, live client.WithWatch, err error) {
	scheme := newScheme()
	labelled := func(label string) cache.ByObject {
		return cache.ByObject{
			Label:     labels.SelectorFromSet(labels.Set{label: nodeName}),
			Transform: cache.TransformStripManagedFields(),
		}
	}
	store, err = cache.New(config, cache.Options{
		Scheme: scheme,
		ByObject: map[client.Object]cache.ByObject{
			&v1.VirtualMachineInstance{}: labelled(v1.NodeNameLabel),
			&corev1.Pod{}: {
				Label:     labels.SelectorFromSet(labels.Set{names.LabelComponent: names.VirtLauncher}),
				Field:     fields.OneTermEqualSelector("spec.nodeName", nodeName),
				Transform: stripPod,
			},
		},
		ReaderFailOnMissingInformer: true,
	})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make cache: %w", err)
	}
	incoming, err = cache.New(config, cache.Options{
		Scheme: scheme,
		ByObject: map[client.Object]cache.ByObject{
			&v1.VirtualMachineInstance{}: labelled(v1.MigrationTargetNodeNameLabel),
		},
		ReaderFailOnMissingInformer: true,
	})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make cache: %w", err)
	}
	live, err = client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make client: %w", err)
	}
	return store, incoming, live, nil
}

// stripPod keeps of a launcher pod what a status is made of.
func stripPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	pod.ManagedFields = nil
	pod.Annotations = network.Kept(pod.Annotations)
	spec := corev1.PodSpec{NodeName: pod.Spec.NodeName}
	if host, ok := pod.Spec.NodeSelector[corev1.LabelHostname]; ok {
		spec.NodeSelector = map[string]string{corev1.LabelHostname: host}
	}
	if affinity := pod.Spec.Affinity; affinity != nil && affinity.NodeAffinity != nil {
		spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: affinity.NodeAffinity.
				RequiredDuringSchedulingIgnoredDuringExecution,
		}}
	}
	for _, c := range pod.Spec.Containers {
		if c.Name == names.ContainerCompute {
			spec.Containers = []corev1.Container{
				{Name: c.Name, Image: c.Image, Resources: corev1.ResourceRequirements{Limits: c.Resources.Limits}},
			}
		}
	}
	pod.Spec = spec
	pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions,
		func(c corev1.PodCondition) bool { return c.Type != corev1.ContainersReady })
	pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses = nil, nil
	return pod, nil
}
