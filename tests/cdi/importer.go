package cdi

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// user is who the importer's pods run as, which is who reads the disks.
const user = 107

// Importer fills the DataVolumes of a namespace whose source is a registry: with a pod that converts the disk of that
// image into the claim. It waits for a pod to use the claim before it begins, as CDI does where volumes bind late.
type Importer struct {
	Client    client.WithWatch
	Namespace string
	// Tools is an image with busybox and qemu-img.
	Tools string
}

// Run works until ctx ends, which is no error.
func (i *Importer) Run(ctx context.Context) error { return follow(ctx, i.Client, i.Namespace, i.fill) }

// follow calls fill with each DataVolume of a namespace, and the namespace's pods, when any of them has changed, until
// ctx ends.
func follow(
	ctx context.Context, c client.WithWatch, namespace string,
	fill func(context.Context, *cdiv1.DataVolume, []corev1.Pod) error,
) error {
	dvs, err := c.Watch(ctx, &cdiv1.DataVolumeList{}, client.InNamespace(namespace))
	if err != nil {
		return fmt.Errorf("watch DataVolumes: %w", err)
	}
	defer dvs.Stop()
	pods, err := c.Watch(ctx, &corev1.PodList{}, client.InNamespace(namespace))
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	defer pods.Stop()
	for {
		var event watch.Event
		var open bool
		select {
		case <-ctx.Done():
			return nil
		case event, open = <-dvs.ResultChan():
		case event, open = <-pods.ResultChan():
		}
		if !open {
			if ctx.Err() != nil {
				return nil
			}
			return errors.New("a watch of the stand-in for CDI ended")
		}
		if event.Type == watch.Error {
			if ctx.Err() != nil {
				return nil // the watch ended as the stand-in does
			}
			return apierrors.FromObject(event.Object)
		}
		if err := step(ctx, c, namespace, fill); err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil {
			return err
		}
	}
}

// step takes every DataVolume further.
func step(
	ctx context.Context, c client.Client, namespace string,
	fill func(context.Context, *cdiv1.DataVolume, []corev1.Pod) error,
) error {
	var dvs cdiv1.DataVolumeList
	var pods corev1.PodList
	if err := errors.Join(c.List(ctx, &dvs, client.InNamespace(namespace)),
		c.List(ctx, &pods, client.InNamespace(namespace))); err != nil {
		return err
	}
	for n := range dvs.Items {
		dv := &dvs.Items[n]
		if dv.DeletionTimestamp != nil {
			continue
		}
		if err := fill(ctx, dv, pods.Items); err != nil {
			return err
		}
	}
	return nil
}

func (i *Importer) fill(ctx context.Context, dv *cdiv1.DataVolume, pods []corev1.Pod) error {
	name := "importer-" + dv.Name
	switch dv.Status.Phase {
	case "":
		if _, err := Claim(ctx, i.Client, dv); err != nil {
			return err
		}
		return SetPhase(ctx, i.Client, dv, cdiv1.WaitForFirstConsumer)
	case cdiv1.WaitForFirstConsumer:
		for p := range pods {
			if pods[p].Spec.NodeName != "" && uses(&pods[p], dv.Name) {
				if err := i.Client.Create(ctx, i.pod(dv, name)); err != nil && !apierrors.IsAlreadyExists(err) {
					return err
				}
				return SetPhase(ctx, i.Client, dv, cdiv1.ImportInProgress)
			}
		}
	case cdiv1.ImportInProgress:
		for p := range pods {
			if pods[p].Name != name {
				continue
			}
			switch pods[p].Status.Phase {
			case corev1.PodSucceeded:
				return SetPhase(ctx, i.Client, dv, cdiv1.Succeeded)
			case corev1.PodFailed:
				return SetPhase(ctx, i.Client, dv, cdiv1.Failed)
			}
		}
	}
	return nil
}

func uses(pod *corev1.Pod, claim string) bool {
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim {
			return true
		}
	}
	return false
}

// pod converts the only file below disk/ of the source's image into disk.img.
func (i *Importer) pod(dv *cdiv1.DataVolume, name string) *corev1.Pod {
	image := ""
	if dv.Spec.Source != nil && dv.Spec.Source.Registry != nil && dv.Spec.Source.Registry.URL != nil {
		image = strings.TrimPrefix(*dv.Spec.Source.Registry.URL, "docker://")
	}
	pod := converter(dv, name, i.Tools, "exec qemu-img convert -O raw /source/disk/* /target/disk.img")
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "source", VolumeSource: corev1.VolumeSource{
		Image: &corev1.ImageVolumeSource{Reference: image, PullPolicy: corev1.PullIfNotPresent},
	}})
	pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts,
		corev1.VolumeMount{Name: "source", MountPath: "/source", ReadOnly: true})
	return pod
}

// converter is a pod that runs a shell's command beside the DataVolume's claim, which is at /target.
func converter(dv *cdiv1.DataVolume, name, tools, command string) *corev1.Pod {
	yes, no, id := true, false, int64(user)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: dv.Namespace,
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(dv, cdiv1.SchemeGroupVersion.WithKind("DataVolume")),
			},
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                corev1.RestartPolicyNever,
			AutomountServiceAccountToken: &no,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsUser: &id, RunAsGroup: &id, RunAsNonRoot: &yes, FSGroup: &id,
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "converter", Image: tools, ImagePullPolicy: corev1.PullIfNotPresent,
				Command: []string{"/usr/bin/busybox", "sh", "-c", command},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: &no,
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
				VolumeMounts: []corev1.VolumeMount{{Name: "target", MountPath: "/target"}},
			}},
			Volumes: []corev1.Volume{{Name: "target", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: dv.Name},
			}}},
		},
	}
}
