package launcher

import (
	"fmt"
	"net"
	"path/filepath"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/disk"
	"github.com/virtkit/virtkit/pkg/vm/domain"
)

// checksums returns the checksums of the container disks, by volume, and of the kernel that is booted instead of one on
// a disk.
func checksums(images map[string]domain.Source, kernel disk.Kernel) map[string]uint32 {
	out := map[string]uint32{}
	for volume, image := range images {
		if image.Backing != nil {
			image = *image.Backing
		}
		if image.Checksum != 0 {
			out[volume] = image.Checksum
		}
	}
	for name, sum := range map[string]uint32{
		names.ChecksumKernel: kernel.KernelChecksum,
		names.ChecksumInitrd: kernel.InitrdChecksum,
	} {
		if sum != 0 {
			out[name] = sum
		}
	}
	return out
}

// sameKernel fails when the kernel or initramfs of firmware.kernelBoot here is another than the one that the guest was
// booted with: it has that in memory, and would come up with this one after a reboot.
func sameKernel(vmi *v1.VirtualMachineInstance, here disk.Kernel) error {
	there := vmi.Status.KernelBootStatus
	if there == nil || here == (disk.Kernel{}) {
		return nil
	}
	differ := there.KernelInfo != nil && there.KernelInfo.Checksum != 0 &&
		there.KernelInfo.Checksum != here.KernelChecksum ||
		there.InitrdInfo != nil && there.InitrdInfo.Checksum != 0 && there.InitrdInfo.Checksum != here.InitrdChecksum
	if !differ {
		return nil
	}
	return fmt.Errorf("firmware.kernelBoot: %s is another image on this node than the one that the guest was booted "+
		"from; its tag was moved: restart the VM, and name images by digest",
		vmi.Spec.Domain.Firmware.KernelBoot.Container.Image)
}

// sameImages fails when a container disk here is another than the one that the guest runs from: what the guest wrote
// lies over that one, and would be garbage over this one.
func sameImages(vmi *v1.VirtualMachineInstance, images map[string]domain.Source) error {
	here := checksums(images, disk.Kernel{})
	for _, s := range vmi.Status.VolumeStatus {
		there := s.ContainerDiskVolume
		if there == nil || there.Checksum == 0 || here[s.Name] == 0 || here[s.Name] == there.Checksum {
			continue
		}
		image := ""
		for _, v := range vmi.Spec.Volumes {
			if v.Name == s.Name && v.ContainerDisk != nil {
				image = v.ContainerDisk.Image
			}
		}
		return fmt.Errorf("volume %q: %s is another image on this node than the one that the guest runs from; its "+
			"tag was moved: restart the VM, and name images by digest", s.Name, image)
	}
	return nil
}

// expectImages prepares for the images that come with a guest. The listener is to be closed when the guest is here.
func (s *service) expectImages(vmi *v1.VirtualMachineInstance) (net.Listener, error) {
	listener, err := listen(filepath.Join(s.options.RunDir, names.SocketMigrationImagesIn))
	if err != nil {
		return nil, err
	}
	s.images <- incomingImages{listener: listener, volumes: disk.ConfigImages(&vmi.Spec)}
	return listener, nil
}
