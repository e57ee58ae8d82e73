package disk

import (
	"bytes"
	"math"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestChecksum(t *testing.T) {
	for _, size := range []int{0, 1, sampleBlock, sampleHead, sampleHead + 1, sampleHead + sampleBlock + 1, 10 << 20} {
		image := bytes.Repeat([]byte("image"), size/5+1)[:size]
		sum := func(b []byte) uint32 {
			got, err := Checksum(bytes.NewReader(b), int64(len(b)))
			if err != nil || got == 0 || got > math.MaxInt32 {
				t.Fatalf("%d bytes: %d, %v", size, got, err)
			}
			return got
		}
		first := sum(image)
		if sum(bytes.Clone(image)) != first {
			t.Errorf("%d bytes: the same image has another checksum", size)
		}
		if longer := append(bytes.Clone(image), 'x'); sum(longer) == first {
			t.Errorf("%d bytes: a longer image has the same checksum", size)
		}
		for _, at := range []int{0, size / 2 / sampleBlock * sampleBlock, size - 1} {
			if at < 0 || size > sampleHead*4 && at != 0 && at != size-1 {
				continue // not all of a large image counts
			}
			if size == 0 {
				continue
			}
			other := bytes.Clone(image)
			other[at] ^= 1
			if sum(other) == first {
				t.Errorf("%d bytes: changed at %d it has the same checksum", size, at)
			}
		}
	}
}

func TestConfigImages(t *testing.T) {
	spec := &v1.VirtualMachineInstanceSpec{}
	for name, source := range map[string]v1.VolumeSource{
		"seed":    {CloudInitNoCloud: &v1.CloudInitNoCloudSource{}},
		"drive":   {CloudInitConfigDrive: &v1.CloudInitConfigDriveSource{}},
		"answers": {Sysprep: &v1.SysprepSource{}}, "root": {ContainerDisk: &v1.ContainerDiskSource{}},
	} {
		spec.Volumes = append(spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, v1.Disk{Name: name})
	}
	spec.Volumes = append(spec.Volumes,
		v1.Volume{Name: "unused", VolumeSource: v1.VolumeSource{Sysprep: &v1.SysprepSource{}}})
	if got := ConfigImages(spec); len(got) != 3 {
		t.Errorf("config images %v", got)
	}
	rest := WithoutConfigImages(spec)
	if len(rest.Volumes) != 1 || rest.Volumes[0].Name != "root" || len(rest.Domain.Devices.Disks) != 1 ||
		len(spec.Volumes) != 5 {
		t.Errorf("without: %+v", rest)
	}
}
