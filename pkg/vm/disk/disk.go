// Package disk makes the images that a guest's disks live on, in its launcher pod: overlays over
// container disks, empty disks, disk.img in an empty claim, and cloud-init's images, NoCloud and config drive.
//
//	VMI ──► inspect (what lies in the pod's volumes) ──► NewPlan (pure) ──► apply (qemu-img, files)
//	                                                        │
//	                                                        └─► map[volume]domain.Source
//
// Prepare does the three in order. It trusts nothing that it reads: container disks come from
// whoever built the image, claims from an earlier guest. So formats are detected by magic and then fixed,
// never left to QEMU's probing, and nothing is followed out of its volume.
//
// The package writes ISO 9660 itself; Image says which libraries were tried.
package disk

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/domain"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
)

// ErrInvalid marks errors that trying again does not fix: the image or the VMI must change.
var ErrInvalid = errors.New("invalid disk")

type invalidError struct{ error }

func (invalidError) Is(target error) bool { return target == ErrInvalid }
func (e invalidError) Unwrap() error      { return e.error }

func invalidf(format string, args ...any) error {
	return invalidError{fmt.Errorf(format, args...)}
}

// Dirs are the directories of a launcher pod's volumes.
type Dirs struct {
	// Disks is writable and lives as long as the pod: overlays, empty disks, cloud-init images.
	Disks string
	// ContainerDisks, Claims and BlockDevices have an entry a volume; Secrets one a cloud-init secret;
	// Credentials one a Secret of spec.accessCredentials.
	ContainerDisks, Claims, BlockDevices, Secrets, Credentials string
	// Hotplug is Claims for volumes that are plugged in while the guest runs.
	Hotplug string
	// Resume is the claim with the memory from which the guest is resumed, if it is.
	Resume string
	// KernelBoot has the image of firmware.kernelBoot.
	KernelBoot string
}

// PodDirs returns the directories of a real launcher pod.
func PodDirs() Dirs {
	return Dirs{
		Disks:          names.DisksDir,
		ContainerDisks: names.ContainerDisksDir,
		Claims:         names.ClaimsDir,
		BlockDevices:   names.BlockDevicesDir,
		Secrets:        names.SecretsDir,
		Credentials:    names.CredentialsDir,
		Hotplug:        names.HotplugDir,
		Resume:         names.ResumeDir,
		KernelBoot:     names.KernelBootDir,
	}
}

// Run runs a program to its end; the error carries what it wrote to stderr.
type Run func(ctx context.Context, name string, args ...string) error

// Prepare makes the images of vmi's volumes and says where they are. It may be called again after
// an error or for a guest that has not run: what it made is made anew, except disk.img in a claim, which
// is never touched once it is there.
func Prepare(
	ctx context.Context, vmi *v1.VirtualMachineInstance, dirs Dirs, run Run,
) (map[string]domain.Source, error) {
	facts, err := inspect(vmi, dirs)
	if err != nil {
		return nil, err
	}
	plan, err := NewPlan(vmi, dirs, facts)
	if err != nil {
		return nil, err
	}
	return apply(ctx, plan, run)
}

// PrepareHotplugged makes the image of one volume that is plugged in while the guest runs, and says where it
// is. It may be called again.
func PrepareHotplugged(
	ctx context.Context, vmi *v1.VirtualMachineInstance, volume string, dirs Dirs, run Run,
) (domain.Source, error) {
	one := *vmi
	one.Spec = *hotplug.Only(&vmi.Spec, volume)
	dirs.Claims = dirs.Hotplug
	sources, err := Prepare(ctx, &one, dirs, run)
	if err != nil {
		return domain.Source{}, err
	}
	source, ok := sources[volume]
	if !ok {
		return domain.Source{}, invalidf("the VMI has no volume and disk named %q", volume)
	}
	return source, nil
}

// ClaimImage is the file on a filesystem claim that is the disk.
const ClaimImage = "disk.img"

// paths of a volume's image, by kind.
func (d Dirs) overlay(volume string) string { return path.Join(d.Disks, volume+".qcow2") }

func (d Dirs) cloudInit(volume string) string { return path.Join(d.Disks, volume+ConfigImageSuffix) }

// ClaimImage returns where the pod has the image of a volume whose claim is a file system.
func (d Dirs) ClaimImage(volume string) string { return d.claimImage(volume) }

// PluggedImage returns where the pod has the image of a hotplugged volume whose claim is a file system.
func (d Dirs) PluggedImage(volume string) string { return path.Join(d.Hotplug, volume, ClaimImage) }

func (d Dirs) claimImage(volume string) string {
	return path.Join(d.Claims, volume, ClaimImage)
}

// Ignition returns where the configuration of annotation kubevirt.io/ignitiondata is for QEMU to read. No volume has
// such a name.
func (d Dirs) Ignition() string { return path.Join(d.Disks, ".ignition.json") }

// hostDisk returns the path in the pod of the image of a hostDisk volume: the directory that it lies in is mounted, as
// a claim is.
func (d Dirs) hostDisk(v *v1.Volume) string {
	return path.Join(d.Claims, v.Name, path.Base(v.HostDisk.Path))
}

// BlockDevice returns where the pod has the device of a volume that is one.
func (d Dirs) BlockDevice(volume string) string { return path.Join(d.BlockDevices, volume) }

// inImage returns an absolute path inside an image, relative to its root and cleaned.
func inImage(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }
