package disk

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/domain"
)

func TestClampBlock(t *testing.T) {
	for size, want := range map[int64]uint{-1: 512, 0: 512, 511: 512, 512: 512, 1000: 512, 4096: 4096, 1 << 20: 4096} {
		if got := clampBlock(size, maxFileBlock); got != want {
			t.Errorf("%d: %d, want %d", size, got, want)
		}
	}
}

// TestMatchVolume: a disk that asks for it has the block sizes of the file system that its image is on, others have
// none.
func TestMatchVolume(t *testing.T) {
	dir := t.TempDir()
	image := filepath.Join(dir, "disk.img")
	if err := os.WriteFile(image, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	plan := Plan{Sources: map[string]domain.Source{
		"matching": {Path: image, Format: FormatRaw, Blocks: &domain.Blocks{}},
		"plain":    {Path: image, Format: FormatRaw},
	}}
	got, err := apply(context.Background(), plan, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got["plain"].Blocks != nil {
		t.Errorf("plain: %+v", got["plain"].Blocks)
	}
	if b := got["matching"].Blocks; b == nil || b.Logical < 512 || b.Logical > maxFileBlock || b.Physical != b.Logical {
		t.Errorf("matching: %+v", b)
	}
}

func TestTagsInConfigDrive(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{{Name: "front", Tag: "front", MacAddress: "02:00:00:00:00:01"}}
	vmi.Spec.Domain.Devices.Disks = []v1.Disk{
		{
			Name: "data", Tag: "data", Serial: "S1",
			DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}},
		},
	}
	files, err := configDrive(vmi, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var meta struct{ Devices json.RawMessage }
	if err := json.Unmarshal(files[driveFolder+"meta_data.json"], &meta); err != nil {
		t.Fatal(err)
	}
	want := `[{"type":"nic","bus":"pci","address":"0000:02:00.0","mac":"02:00:00:00:00:01","tags":["front"]},` +
		`{"type":"disk","bus":"pci","address":"0000:01:00.0","serial":"S1","tags":["data"]}]`
	if string(meta.Devices) != want {
		t.Errorf("got  %s\nwant %s", meta.Devices, want)
	}
	vmi.Spec.Domain.Devices.Interfaces[0].PciAddress = "x"
	if _, err := configDrive(vmi, nil, nil, nil); err == nil {
		t.Error("an address that is none is taken")
	}
}
