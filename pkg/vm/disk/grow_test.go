package disk

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
)

// ofCapacity is a VMI whose volume is a claim of a capacity; "" is not known.
func ofCapacity(capacity string, readOnly bool) *v1.VirtualMachineInstance {
	vmi := vmiWith(asDisk, claimSource(readOnly))
	info := &v1.PersistentVolumeClaimInfo{ClaimName: "pvc"}
	if capacity != "" {
		info.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(capacity)}
	}
	vmi.Status.VolumeStatus = []v1.VolumeStatus{{Name: "vol", PersistentVolumeClaimInfo: info}}
	return vmi
}

// room is a directory of claims with an image of so many bytes, written in full.
func room(t *testing.T, size int) (Dirs, string) {
	t.Helper()
	dirs := Dirs{Claims: t.TempDir(), BlockDevices: t.TempDir(), Hotplug: t.TempDir()}
	if err := os.Mkdir(filepath.Join(dirs.Claims, "vol"), 0o755); err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(dirs.Claims, "vol", ClaimImage)
	if err := os.WriteFile(image, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	return dirs, image
}

func TestGrowImages(t *testing.T) {
	overhead := v1.Percent("0.25")
	for name, tc := range map[string]struct {
		capacity string
		overhead *v1.Percent
		readOnly bool
		change   func(*v1.VirtualMachineInstance)
		want     int64
	}{
		"grown":                {capacity: "8Mi", want: 8 << 20},
		"with overhead":        {capacity: "8Mi", overhead: &overhead, want: 6 << 20},
		"whole MiB":            {capacity: "8M", want: 7 << 20},
		"not smaller":          {capacity: "1Mi", want: 2 << 20},
		"as it is":             {capacity: "2Mi", want: 2 << 20},
		"capacity not known":   {want: 2 << 20},
		"claim is only read":   {capacity: "8Mi", readOnly: true, want: 2 << 20},
		"more than there is":   {capacity: "1Ei", want: -1},
		"disk is only read":    {capacity: "8Mi", want: 2 << 20, change: readOnlyDisk},
		"an overlay's backing": {capacity: "8Mi", want: 2 << 20, change: overlaid},
		"in a drive":           {capacity: "8Mi", want: 2 << 20, change: inDrive},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := ofCapacity(tc.capacity, tc.readOnly)
			vmi.Status.VolumeStatus[0].PersistentVolumeClaimInfo.FilesystemOverhead = tc.overhead
			if tc.change != nil {
				tc.change(vmi)
			}
			dirs, image := room(t, 2<<20)
			grown, err := GrowImages(vmi, dirs)
			info, statErr := os.Stat(image)
			if err := errors.Join(err, statErr); err != nil {
				t.Fatal(err)
			}
			if tc.want < 0 { // what the file system has
				var st unix.Statfs_t
				if err := unix.Statfs(image, &st); err != nil {
					t.Fatal(err)
				}
				if most := int64(st.Blocks) * st.Bsize; info.Size() <= 2<<20 || info.Size() > most {
					t.Errorf("%d bytes where there are %d", info.Size(), most)
				}
				return
			}
			if info.Size() != tc.want || (grown["vol"] == tc.want) != (tc.want != 2<<20) {
				t.Errorf("%d bytes, want %d; %v", info.Size(), tc.want, grown)
			}
		})
	}
}

func readOnlyDisk(vmi *v1.VirtualMachineInstance) {
	vmi.Spec.Domain.Devices.Disks[0].DiskDevice = v1.DiskDevice{Disk: &v1.DiskTarget{ReadOnly: true}}
}

func inDrive(vmi *v1.VirtualMachineInstance) {
	vmi.Spec.Domain.Devices.Disks[0].DiskDevice = v1.DiskDevice{CDRom: &v1.CDRomTarget{}}
}

func overlaid(vmi *v1.VirtualMachineInstance) {
	vmi.Spec.Volumes[0].VolumeSource = v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "pvc"},
	}}
}

// TestGrowImagesHostile: an image that a stranger has put on the claim is neither followed nor grown.
func TestGrowImagesHostile(t *testing.T) {
	dirs, image := room(t, 1<<20)
	other := filepath.Join(t.TempDir(), "other")
	if err := errors.Join(os.Rename(image, other), os.Symlink(other, image)); err != nil {
		t.Fatal(err)
	}
	vmi := ofCapacity("8Mi", false)
	if grown, err := GrowImages(vmi, dirs); !errors.Is(err, unix.ELOOP) || len(grown) != 0 {
		t.Errorf("a link: %v, %v", grown, err)
	}
	if _, err := GrownSize(vmi, &vmi.Spec.Volumes[0], dirs); !errors.Is(err, errNotRegular) {
		t.Errorf("a link: %v", err)
	}
	if info, err := os.Stat(other); err != nil || info.Size() != 1<<20 {
		t.Errorf("what it leads to: %v, %v", info, err)
	}
	if err := errors.Join(os.Remove(image), unix.Mkfifo(image, 0o600)); err != nil {
		t.Fatal(err)
	}
	if grown, err := GrowImages(vmi, dirs); err != nil || len(grown) != 0 {
		t.Errorf("a FIFO: %v, %v", grown, err)
	}
	if err := os.Remove(image); err != nil {
		t.Fatal(err)
	}
	if grown, err := GrowImages(vmi, dirs); err != nil || len(grown) != 0 {
		t.Errorf("nothing: %v, %v", grown, err)
	}
}

func TestGrownSize(t *testing.T) {
	dirs, _ := room(t, 1<<20)
	vmi := ofCapacity("8Mi", false)
	volume := &vmi.Spec.Volumes[0]
	if size, err := GrownSize(vmi, volume, dirs); err != nil || size != 8<<20 {
		t.Errorf("%d, %v", size, err)
	}
	if err := os.Rename(filepath.Join(dirs.Claims, "vol"), filepath.Join(dirs.Hotplug, "vol")); err != nil {
		t.Fatal(err)
	}
	volume.PersistentVolumeClaim.Hotpluggable = true
	if size, err := GrownSize(vmi, volume, dirs); err != nil || size != 8<<20 {
		t.Errorf("hotplugged: %d, %v", size, err)
	}
	if err := os.WriteFile(filepath.Join(dirs.BlockDevices, "vol"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := GrownSize(vmi, volume, dirs); err == nil {
		t.Error("a file in the place of a device")
	}
}
