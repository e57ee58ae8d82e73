package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	v1 "kubevirt.io/api/core/v1"
)

// Kernel has the files that a guest boots by firmware.kernelBoot: paths in the pod, empty for none, and their
// checksums.
type Kernel struct {
	Kernel, Initrd                 string
	KernelChecksum, InitrdChecksum uint32
}

// FindKernel finds the kernel and initramfs that a VMI names in the image at dirs.KernelBoot. It returns the zero
// Kernel for a VMI that boots from its disks.
func FindKernel(vmi *v1.VirtualMachineInstance, dirs Dirs) (Kernel, error) {
	firmware := vmi.Spec.Domain.Firmware
	if firmware == nil || firmware.KernelBoot == nil || firmware.KernelBoot.Container == nil {
		return Kernel{}, nil
	}
	source := firmware.KernelBoot.Container
	root, err := os.OpenRoot(dirs.KernelBoot)
	if err != nil {
		return Kernel{}, fmt.Errorf("open the image %s of firmware.kernelBoot: %w", source.Image, err)
	}
	defer root.Close()
	var out Kernel
	for _, file := range []struct {
		field, path string
		to          *string
		sum         *uint32
	}{
		{"kernelPath", source.KernelPath, &out.Kernel, &out.KernelChecksum},
		{"initrdPath", source.InitrdPath, &out.Initrd, &out.InitrdChecksum},
	} {
		if file.path == "" {
			continue
		}
		name := inImage(file.path)
		if *file.sum, err = fileChecksum(root, name); err != nil {
			return Kernel{}, fmt.Errorf("firmware.kernelBoot.container.%s: image %s: %w", file.field, source.Image, err)
		}
		*file.to = path.Join(dirs.KernelBoot, name)
	}
	return out, nil
}

// fileChecksum returns the checksum of a file in an image; it fails when the name is not a regular file that we may
// read. Links are not followed: they would lead out of the image that the user named.
func fileChecksum(root *os.Root, name string) (sum uint32, err error) {
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, invalidf("there is no file /%s", name)
	}
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, invalidf("/%s is not a regular file", name)
	}
	f, err := root.Open(name)
	if errors.Is(err, fs.ErrPermission) {
		return 0, invalidf("/%s cannot be read by user 107; build the image with the file owned by 107 or readable "+
			"by all", name)
	}
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return Checksum(f, info.Size())
}
