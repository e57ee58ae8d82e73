package vmicontroller

import (
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// tokenSeconds is the lifetime of a service account's token, by name. The API server takes this very number for the
// lifetime of every pod's token, and keeps such tokens good for a year: the guest's copy is made once.
const tokenSeconds = 3607

// configuration mounts what Kubernetes has into the pod, where the launcher makes an image of it.
func (p *podVolumes) configuration(volume *v1.Volume) {
	p.mount(volume.Name, path.Join(names.SecretsDir, volume.Name), true, configurationSource(volume))
}

// configurationSource returns the volume source whose files the kubelet writes.
func configurationSource(volume *v1.Volume) (source corev1.VolumeSource) {
	switch {
	case volume.ConfigMap != nil:
		source.ConfigMap = &corev1.ConfigMapVolumeSource{
			LocalObjectReference: volume.ConfigMap.LocalObjectReference, Optional: volume.ConfigMap.Optional,
		}
	case volume.Secret != nil:
		source.Secret = &corev1.SecretVolumeSource{
			SecretName: volume.Secret.SecretName,
			Optional:   volume.Secret.Optional,
		}
	case volume.DownwardAPI != nil:
		source.DownwardAPI = &corev1.DownwardAPIVolumeSource{Items: downwardFields(volume.DownwardAPI.Fields)}
	case volume.ServiceAccount != nil:
		source.Projected = &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
				Path:              "token",
				ExpirationSeconds: new(int64(tokenSeconds)),
			}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path:     "namespace",
				FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
			}}}},
		}}
	}
	return source
}

// downwardFields returns the fields as the pod takes them: resources are those of the container that the guest runs in.
func downwardFields(fields []corev1.DownwardAPIVolumeFile) []corev1.DownwardAPIVolumeFile {
	out := copyAll(fields)
	for i := range out {
		if ref := out[i].ResourceFieldRef; ref != nil && ref.ContainerName == "" {
			ref.ContainerName = names.ContainerCompute
		}
	}
	return out
}

// serviceAccount returns the account that the VMI has a volume of, which its pod must run as to get its token; empty
// for none.
func serviceAccount(vmi *v1.VirtualMachineInstance) string {
	for i := range vmi.Spec.Volumes {
		if source := vmi.Spec.Volumes[i].ServiceAccount; source != nil {
			return source.ServiceAccountName
		}
	}
	return ""
}

// hostDisk mounts the directory of a node's image, where virt-handler makes it if that is asked for. A namespace whose
// pods may not have host paths refuses the pod.
func (p *podVolumes) hostDisk(name string, source *v1.HostDisk) {
	kind := corev1.HostPathDirectory
	if source.Type == v1.HostDiskExistsOrCreate {
		kind = corev1.HostPathDirectoryOrCreate
	}
	p.mount(name, path.Join(names.ClaimsDir, name), false, corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: path.Dir(source.Path), Type: &kind},
	})
}

// nodeNameVariable has the name of the node in a launcher that needs to know.
const nodeNameVariable = "NODE_NAME"

// exposesMetrics reports whether the guest sees metrics of its node.
func exposesMetrics(vmi *v1.VirtualMachineInstance) bool {
	return vmi.Spec.Domain.Devices.DownwardMetrics != nil ||
		slices.ContainsFunc(vmi.Spec.Volumes, func(v v1.Volume) bool { return v.DownwardMetrics != nil })
}

// kernelBoot mounts the image with the kernel that the guest boots, if it names one.
func (p *podVolumes) kernelBoot(vmi *v1.VirtualMachineInstance) {
	firmware := vmi.Spec.Domain.Firmware
	if firmware == nil || firmware.KernelBoot == nil || firmware.KernelBoot.Container == nil {
		return
	}
	source := firmware.KernelBoot.Container
	p.image("kernel-boot", names.KernelBootDir, source.Image, source.ImagePullPolicy, source.ImagePullSecret)
}
