package domain

import v1 "kubevirt.io/api/core/v1"

func init() {
	cases["kernel-boot"] = func(vmi *v1.VirtualMachineInstance, f *Facts) {
		vmi.Spec.Domain.Firmware.KernelBoot = &v1.KernelBoot{
			KernelArgs: "console=ttyS0 quiet",
			Container: &v1.KernelBootContainer{
				Image: "kernel", KernelPath: "/boot/vmlinuz", InitrdPath: "/boot/initrd",
			},
		}
		f.Kernel, f.Initrd = "/kernel-boot/boot/vmlinuz", "/kernel-boot/boot/initrd"
	}
	cases["downward-metrics"] = func(vmi *v1.VirtualMachineInstance, f *Facts) {
		f.MetricsPort = "/run/metrics.sock"
		vmi.Spec.Domain.Devices.DownwardMetrics = &v1.DownwardMetrics{}
		addDisk(vmi, f, v1.Disk{Name: "metrics"}, v1.VolumeSource{DownwardMetrics: &v1.DownwardMetricsVolumeSource{}},
			Source{Path: "/disks/metrics.metrics", Format: "raw", ReadOnly: true, Live: true})
	}
	// Files are not booted from, an overlay on a claim is.
	cases["ephemeral-and-files"] = func(vmi *v1.VirtualMachineInstance, f *Facts) {
		for name, source := range map[string]v1.VolumeSource{
			"config": {ConfigMap: &v1.ConfigMapVolumeSource{}},
		} {
			addDisk(vmi, f, v1.Disk{Name: name, DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{}}}, source,
				Source{Path: "/disks/" + name + ".iso", Format: "raw", ReadOnly: true})
		}
		addDisk(vmi, f, v1.Disk{Name: "golden"}, v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}, Source{
			Path: "/disks/golden.qcow2", Format: "qcow2", DirectIO: true,
			Backing: &Source{Path: "/dev/block/golden", Block: true, Format: "raw", ReadOnly: true},
		})
	}
}
