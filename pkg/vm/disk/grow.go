package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
)

// GrownSize returns the size that the image of a claim is to have for the guest, now that the claim has the capacity of
// the VMI's status: that of the device, or what claimSize says of the file system as it is now. It is never less than
// what the image has.
func GrownSize(vmi *v1.VirtualMachineInstance, v *v1.Volume, dirs Dirs) (int64, error) {
	device := dirs.BlockDevice(v.Name)
	switch info, err := os.Stat(device); {
	case err == nil && info.Mode()&fs.ModeDevice == 0:
		return 0, fmt.Errorf("%s is not a device", device)
	case err == nil:
		return sizeOf(device)
	case !errors.Is(err, fs.ErrNotExist):
		return 0, err
	}
	if hotplug.Is(v) {
		dirs.Claims = dirs.Hotplug
	}
	f, info, err := openRegular(dirs.claimImage(v.Name))
	if err != nil {
		return 0, err
	}
	size, err := grownImage(vmi, v.Name, f, info.Size())
	return size, errors.Join(err, f.Close())
}

// grownImage returns what GrownSize does for a disk.img, whose size is has.
func grownImage(vmi *v1.VirtualMachineInstance, volume string, f *os.File, has int64) (int64, error) {
	if !hasCapacity(vmi, volume) {
		return has, nil
	}
	var system unix.Statfs_t
	var image unix.Stat_t
	if err := errors.Join(unix.Fstatfs(int(f.Fd()), &system), unix.Fstat(int(f.Fd()), &image)); err != nil {
		return 0, fmt.Errorf("look at the room of %s: %w", f.Name(), err)
	}
	const blockUnit = 512 // of stat, whatever the file system's blocks are
	return max(has, claimSize(vmi, volume, int64(system.Bavail)*system.Bsize+image.Blocks*blockUnit)), nil
}

// hasCapacity reports whether the VMI's status has the capacity of a volume's claim.
func hasCapacity(vmi *v1.VirtualMachineInstance, volume string) bool {
	for i := range vmi.Status.VolumeStatus {
		s := &vmi.Status.VolumeStatus[i]
		if s.Name == volume && s.PersistentVolumeClaimInfo != nil {
			_, ok := s.PersistentVolumeClaimInfo.Capacity[corev1.ResourceStorage]
			return ok
		}
	}
	return false
}

// Grows reports whether the disk of a volume grows with its claim: the guest may write it, and it is no overlay.
func Grows(spec *v1.VirtualMachineInstanceSpec, v *v1.Volume) bool {
	if !claims.Storage(v) || claims.Of(v).ReadOnly {
		return false
	}
	d := hotplug.Disk(spec, v.Name)
	return d == nil && hotplug.Is(v) || d != nil && d.CDRom == nil && (d.Disk == nil || !d.Disk.ReadOnly)
}

// GrowImages gives the images of a guest that does not run the size of their claims. It returns the sizes of those that
// have grown, by volume, also with an error: one image's failure does not keep the others from growing.
func GrowImages(vmi *v1.VirtualMachineInstance, dirs Dirs) (map[string]int64, error) {
	grown := map[string]int64{}
	var failed error
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		if diskOf(vmi, v.Name) == nil || !Grows(&vmi.Spec, v) {
			continue
		}
		size, err := growImage(vmi, v, dirs)
		if err != nil {
			failed = errors.Join(failed, volumeError(v.Name, err))
		}
		if size > 0 {
			grown[v.Name] = size
		}
	}
	return grown, failed
}

// growImage grows one disk.img, and returns its new size; 0 when it has not grown, as there is none, or it has its
// size.
func growImage(vmi *v1.VirtualMachineInstance, v *v1.Volume, dirs Dirs) (grown int64, err error) {
	// As openRegular: no link is followed, and no FIFO waited for.
	f, err := os.OpenFile(dirs.claimImage(v.Name), os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // a device, or an image that is yet to be made
	}
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return 0, err // Prepare says what is wrong with it
	}
	size, err := grownImage(vmi, v.Name, f, info.Size())
	if err != nil || size <= info.Size() {
		return 0, err
	}
	return size, f.Truncate(size)
}
