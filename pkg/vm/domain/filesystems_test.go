package domain

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
)

func init() {
	share := func(vmi *v1.VirtualMachineInstance) {
		for _, name := range []string{"app-config", "data"} {
			vmi.Spec.Domain.Devices.Filesystems = append(vmi.Spec.Domain.Devices.Filesystems,
				v1.Filesystem{Name: name, Virtiofs: &v1.FilesystemVirtiofs{}})
			vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: name, VolumeSource: claim})
		}
	}
	cases["filesystems"] = func(vmi *v1.VirtualMachineInstance, _ *Facts) { share(vmi) }
	// What is huge pages is files anyway, and it is all there from the beginning.
	cases["filesystems-hugepages"] = func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		share(vmi)
		vmi.Spec.Domain.Memory.Hugepages = &v1.Hugepages{PageSize: "2Mi"}
		vmi.Spec.Domain.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
	}
	cases["filesystems-max-guest"] = func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		share(vmi)
		vmi.Spec.Domain.Memory.MaxGuest = new(resource.MustParse("512Mi"))
	}
	cases["filesystems-limited"] = func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		share(vmi)
		vmi.Spec.Domain.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
	}
}
