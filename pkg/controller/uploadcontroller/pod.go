package uploadcontroller

import (
	"cmp"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/controller/helperpods"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/imageformat"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

const (
	// lifetime is the longest that an upload may take, seconds.
	lifetime = 24 * 60 * 60
	// grace is the pod's termination grace period, seconds, in which the server says why it ended.
	grace = 10
	// scratchMore is the size by which an image may exceed its disk.
	scratchMore = 64 << 20

	volumeClaim, volumeScratch, volumeImage = "claim", "scratch", "image"
)

// The server has 48 MiB and a compression's window of 64, qemu-img 100 and some, and the rest is for pages that are not
// on the disk yet.
var resources = corev1.ResourceRequirements{
	Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi"),
	},
	Limits: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("512Mi"),
	},
}

// Facts hold what an upload's pod depends on besides its claim and request.
type Facts struct {
	Config config.Config
	// Image and ImagePullPolicy are virt-launcher's; the configuration's pull policy wins.
	Image           string
	ImagePullPolicy corev1.PullPolicy
}

// Pod returns the pod that takes an upload. It passes Pod Security `restricted`, has no service account's token and
// opens no port: virt-handler reaches its socket in the run volume.
func Pod(claim *corev1.PersistentVolumeClaim, request *uploads.Request, facts Facts) *corev1.Pod {
	capacity, ok := claim.Status.Capacity[corev1.ResourceStorage]
	if !ok {
		capacity = claim.Spec.Resources.Requests[corev1.ResourceStorage]
	}
	container := corev1.Container{
		Name:            names.ContainerCompute,
		Image:           facts.Image,
		ImagePullPolicy: cmp.Or(facts.Config.ImagePullPolicy, facts.ImagePullPolicy),
		Command:         []string{"/usr/bin/virt-launcher", "upload"},
		Args: []string{
			"--id=" + request.ID, "--size=" + strconv.FormatInt(request.Size, 10),
			"--capacity=" + strconv.FormatInt(capacity.Value(), 10),
		},
		Resources:    resources,
		VolumeMounts: []corev1.VolumeMount{{Name: names.VolumeRun, MountPath: names.RunDir}},
	}
	if request.Format != "" {
		container.Args = append(container.Args, "--format="+string(request.Format))
	}
	volumes := []corev1.Volume{
		{Name: names.VolumeRun, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
			SizeLimit: resource.NewQuantity(1<<20, resource.BinarySI),
		}}},
		{Name: volumeClaim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
		}},
	}
	if claims.IsBlock(claim.Spec.VolumeMode) {
		container.Args = append(container.Args, "--device="+names.UploadDevice)
		container.VolumeDevices = []corev1.VolumeDevice{{Name: volumeClaim, DevicePath: names.UploadDevice}}
		if request.Format != imageformat.Raw {
			container.VolumeMounts = append(container.VolumeMounts,
				corev1.VolumeMount{Name: volumeScratch, MountPath: names.UploadScratchDir})
			limit := capacity.Value() + capacity.Value()/8 + 2*scratchMore
			volumes = append(volumes, corev1.Volume{Name: volumeScratch, VolumeSource: corev1.VolumeSource{
				EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(limit, resource.BinarySI)},
			}})
		}
	} else {
		container.Args = append(container.Args, "--directory="+names.UploadDir,
			"--overhead="+strconv.FormatFloat(uploads.Overhead, 'g', -1, 64))
		container.VolumeMounts = append(container.VolumeMounts,
			corev1.VolumeMount{Name: volumeClaim, MountPath: names.UploadDir})
	}
	var pullSecrets []corev1.LocalObjectReference
	if disk := request.ContainerDisk; disk != nil {
		container.Args = append(container.Args, "--image-directory="+names.UploadImageDir, "--image="+disk.Image)
		if disk.Path != "" {
			container.Args = append(container.Args, "--image-path="+disk.Path)
		}
		container.VolumeMounts = append(container.VolumeMounts,
			corev1.VolumeMount{Name: volumeImage, MountPath: names.UploadImageDir, ReadOnly: true})
		volumes = append(volumes, corev1.Volume{Name: volumeImage, VolumeSource: corev1.VolumeSource{
			Image: &corev1.ImageVolumeSource{Reference: disk.Image},
		}})
		if disk.PullSecret != "" {
			pullSecrets = []corev1.LocalObjectReference{{Name: disk.PullSecret}}
		}
	}
	pod := helperpods.Restricted(metav1.ObjectMeta{
		Name: uploads.PodName(claim.UID, request.ID), Namespace: claim.Namespace,
		Labels: map[string]string{names.LabelComponent: names.VirtUpload},
		OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(claim, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")),
		},
	}, container, volumes, facts.Config.NodeSelectors, grace)
	pod.Spec.RestartPolicy, pod.Spec.ActiveDeadlineSeconds = corev1.RestartPolicyNever, new(int64(lifetime))
	pod.Spec.ImagePullSecrets = pullSecrets
	return pod
}
