package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// maxSecret bounds what is read from a cloud-init secret, bytes; Kubernetes keeps no larger ones.
const maxSecret = 1 << 20

// inspect looks at the volumes that the VMI's disks use.
func inspect(vmi *v1.VirtualMachineInstance, dirs Dirs) (map[string]Facts, error) {
	out := map[string]Facts{}
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		if diskOf(vmi, v.Name) == nil {
			continue
		}
		f, err := look(vmi, v, dirs)
		if err == nil {
			f.PublicKeys, err = lookKeys(vmi, v, dirs)
		}
		if err != nil {
			return nil, volumeError(v.Name, err)
		}
		out[v.Name] = f
	}
	return out, nil
}

func look(vmi *v1.VirtualMachineInstance, v *v1.Volume, dirs Dirs) (Facts, error) {
	switch {
	case v.ContainerDisk != nil:
		return lookContainerDisk(path.Join(dirs.ContainerDisks, v.Name), v.ContainerDisk)
	case v.PersistentVolumeClaim != nil, v.DataVolume != nil:
		f, err := lookClaim(v, dirs)
		if err == nil && f.Block && volumemigration.CopySize(vmi, v.Name) > 0 {
			f.Size, err = sizeOf(dirs.BlockDevice(v.Name))
		}
		return f, err
	case v.CloudInitNoCloud != nil, v.CloudInitConfigDrive != nil:
		return lookSecrets(v, dirs)
	case v.Sysprep != nil:
		return lookSysprep(v, dirs)
	case v.HostDisk != nil:
		return Facts{}, lookHostDisk(v, dirs)
	case v.Ephemeral != nil:
		return lookEphemeral(v, dirs)
	}
	if _, ok := configuration(v); ok {
		return lookConfiguration(v, dirs)
	}
	return Facts{}, nil
}

// lookContainerDisk looks at the image of a container disk.
func lookContainerDisk(dir string, src *v1.ContainerDiskSource) (Facts, error) {
	f, size, err := OpenContainerDisk(dir, src.Image, src.Path)
	if err != nil {
		return Facts{}, err
	}
	defer f.Close()
	h, err := ReadHeader(f, size)
	if err != nil {
		return Facts{}, fmt.Errorf("container disk %s: %w", src.Image, err)
	}
	sum, err := Checksum(f, size)
	if err != nil {
		return Facts{}, fmt.Errorf("container disk %s: %w", src.Image, err)
	}
	return Facts{Path: f.Name(), Header: h, Checksum: sum}, nil
}

// OpenContainerDisk opens the disk in a container image that is mounted at dir, and returns its size, bytes: name, or
// the only file below disk/. Links are not followed: they would lead out of the image that the user named.
func OpenContainerDisk(dir, image, name string) (*os.File, int64, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, 0, fmt.Errorf("open the container disk %s: %w", image, err)
	}
	defer root.Close()
	in := inImage(name)
	if name == "" {
		if in, err = onlyFile(root, image); err != nil {
			return nil, 0, err
		}
	}
	info, err := root.Lstat(in)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, invalidf("container disk %s has no file %s", image, "/"+in)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("container disk %s: %w", image, err)
	}
	if !info.Mode().IsRegular() {
		return nil, 0, invalidf("container disk %s: /%s is not a regular file", image, in)
	}
	f, err := root.Open(in)
	if errors.Is(err, fs.ErrPermission) {
		return nil, 0, invalidf("container disk %s: /%s cannot be read by user 107; build the image with the file "+
			"owned by 107 or readable by all", image, in)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("container disk %s: %w", image, err)
	}
	return f, info.Size(), nil
}

// onlyFile finds the image in disk/, where exactly one file must be.
func onlyFile(root *os.Root, image string) (string, error) {
	entries, err := fs.ReadDir(root.FS(), "disk")
	if errors.Is(err, fs.ErrNotExist) {
		return "", invalidf("container disk %s has no folder /disk; put the image there or name it in "+
			"containerDisk.path", image)
	}
	if err != nil {
		return "", fmt.Errorf("container disk %s: %w", image, err)
	}
	if len(entries) != 1 {
		return "", invalidf("container disk %s has %d files in /disk, not one; name the image in containerDisk.path",
			image, len(entries))
	}
	return "disk/" + entries[0].Name(), nil
}

// lookClaim finds whether a claim is a device or a file system by where the pod has it.
func lookClaim(v *v1.Volume, dirs Dirs) (Facts, error) {
	device := dirs.BlockDevice(v.Name)
	if info, err := os.Stat(device); err == nil {
		if info.Mode()&fs.ModeDevice == 0 {
			return Facts{}, fmt.Errorf("%s is not a device", device)
		}
		return Facts{Block: true}, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return Facts{}, fmt.Errorf("claim %s: %w", claims.Name(v), err)
	}
	image := dirs.claimImage(v.Name)
	f, info, err := openRegular(image)
	if errors.Is(err, errNotRegular) {
		return Facts{}, invalidf("claim %s: %s is not a regular file", claims.Name(v), ClaimImage)
	}
	if err == nil {
		if err := f.Close(); err != nil {
			return Facts{}, fmt.Errorf("claim %s: %w", claims.Name(v), err)
		}
		if info.Size() == 0 {
			return Facts{}, invalidf("claim %s: %s is empty; delete it to have one made", claims.Name(v), ClaimImage)
		}
		return Facts{Exists: true, Size: roundUp(info.Size(), sectorSize)}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return Facts{}, fmt.Errorf("claim %s: %w", claims.Name(v), err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path.Dir(image), &st); err != nil {
		return Facts{}, fmt.Errorf("claim %s is not mounted: %w", claims.Name(v), err)
	}
	return Facts{Free: int64(st.Bavail) * st.Bsize}, nil
}

// lookEphemeral looks at the claim below an ephemeral volume, whose image must be there.
func lookEphemeral(v *v1.Volume, dirs Dirs) (Facts, error) {
	f, err := lookClaim(v, dirs)
	if err != nil {
		return Facts{}, err
	}
	if !f.Block {
		if !f.Exists {
			return Facts{},
				invalidf("claim %s has no %s, which an ephemeral volume is to lie on", claims.Name(v), ClaimImage)
		}
		return f, nil
	}
	if f.Size, err = sizeOf(dirs.BlockDevice(v.Name)); err != nil {
		return Facts{}, fmt.Errorf("claim %s: %w", claims.Name(v), err)
	}
	return f, nil
}

// lookHostDisk looks at an image of the node's, which virt-handler has made if it was to be made.
func lookHostDisk(v *v1.Volume, dirs Dirs) error {
	f, info, err := openRegular(dirs.hostDisk(v))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return invalidf("hostDisk %s does not exist on this node; make it there, or use type: DiskOrCreate",
			v.HostDisk.Path)
	case errors.Is(err, errNotRegular):
		return invalidf("hostDisk %s is not a regular file", v.HostDisk.Path)
	case errors.Is(err, fs.ErrPermission):
		return invalidf("hostDisk %s cannot be read by user 107; virtkit gives away only what it made: chown 107:107 "+
			"it on the node", v.HostDisk.Path)
	case err != nil:
		return fmt.Errorf("hostDisk %s: %w", v.HostDisk.Path, err)
	case info.Size() == 0:
		err = invalidf("hostDisk %s is empty; delete it to have one made", v.HostDisk.Path)
	}
	return errors.Join(err, f.Close())
}

// errNotRegular says that something other than a file is in its place.
var errNotRegular = errors.New("not a regular file")

// openRegular opens a regular file for reading and describes what was opened. No link is followed at its end, and no
// FIFO waited for: who else may write the directory may have put one there.
func openRegular(name string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) { // a link; a socket or a device that nobody serves
		return nil, nil, fmt.Errorf("%w: %w", errNotRegular, err)
	}
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errNotRegular
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// sizeOf returns the size of a file or device, bytes, in whole sectors.
func sizeOf(name string) (int64, error) {
	file, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err = errors.Join(err, file.Close()); err != nil {
		return 0, err
	}
	return roundUp(size, sectorSize), nil
}

// lookSecrets reads cloud-init's secrets, under either of the keys that KubeVirt accepts.
func lookSecrets(v *v1.Volume, dirs Dirs) (Facts, error) {
	src, _ := cloudInitSource(v)
	var f Facts
	var err error
	if ref := src.UserDataSecretRef; ref != nil {
		if f.UserData, err = readSecret(path.Join(dirs.Secrets, v.Name), ref.Name, "userdata", "userData"); err != nil {
			return Facts{}, err
		}
	}
	if ref := src.NetworkDataSecretRef; ref != nil {
		if f.NetworkData, err = readSecret(path.Join(dirs.Secrets, v.Name+"-networkdata"), ref.Name, "networkdata",
			"networkData"); err != nil {
			return Facts{}, err
		}
	}
	return f, nil
}

func readSecret(dir, secret string, keys ...string) ([]byte, error) {
	for _, key := range keys {
		f, err := os.Open(path.Join(dir, key))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("secret %s: %w", secret, err)
		}
		data, err := io.ReadAll(io.LimitReader(f, maxSecret))
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("secret %s: %w", secret, err)
		}
		return data, nil
	}
	return nil, fmt.Errorf("secret %s has no key %s", secret, keys[0])
}

func volumeError(volume string, err error) error {
	return fmt.Errorf("%s%w", hotplug.Naming(volume), err)
}
