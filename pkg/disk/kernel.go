package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	v1 "kubevirt.io/api/core/v1"
)

// Kernel is what a guest boots by firmware.kernelBoot: paths in the pod, empty for none.
type Kernel struct{ Kernel, Initrd string }

// FindKernel finds the kernel and initramfs that a VMI names in the image at dirs.KernelBoot. The zero Kernel is that of
// a VMI that boots from its disks.
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
	}{{"kernelPath", source.KernelPath, &out.Kernel}, {"initrdPath", source.InitrdPath, &out.Initrd}} {
		if file.path == "" {
			continue
		}
		name := inImage(file.path)
		if err := readable(root, name); err != nil {
			return Kernel{}, fmt.Errorf("firmware.kernelBoot.container.%s: image %s: %w", file.field, source.Image, err)
		}
		*file.to = path.Join(dirs.KernelBoot, name)
	}
	return out, nil
}

// readable fails when a name in an image is no regular file that we may read. Links are not followed: they would lead
// out of the image that the user named.
func readable(root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return invalidf("there is no file /%s", name)
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return invalidf("/%s is not a regular file", name)
	}
	f, err := root.Open(name)
	if errors.Is(err, fs.ErrPermission) {
		return invalidf("/%s cannot be read by user 107; build the image with the file owned by 107 or readable by all", name)
	}
	if err != nil {
		return err
	}
	return f.Close()
}
