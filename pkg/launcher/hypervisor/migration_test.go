package hypervisor

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"libvirt.org/go/libvirtxml"
)

// TestBeforeMemory counts memory among what is left while the disks are copied.
func TestBeforeMemory(t *testing.T) {
	t.Parallel()
	got := Progress{DataTotal: 100, DataProcessed: 92, DataRemaining: 8, DiskRemaining: 8}.BeforeMemory(900)
	want := Progress{DataTotal: 1000, DataProcessed: 92, DataRemaining: 908, DiskRemaining: 8, MemoryRemaining: 900}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A disk that moves is found by its alias, and has another image at the target: a device for a file, and the other way.
func TestMovedDisks(t *testing.T) {
	t.Parallel()
	const text = `<domain type='qemu'>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw'/>
      <source file='/claims/a/disk.img'/>
      <target dev='vda' bus='virtio'/>
      <alias name='ua-a'/>
    </disk>
    <disk type='block' device='disk'>
      <source dev='/dev/b'/>
      <target dev='vdb' bus='virtio'/>
      <alias name='ua-b'/>
    </disk>
    <disk type='file' device='disk'>
      <source file='/claims/c/disk.img'/>
      <target dev='vdc' bus='virtio'/>
      <alias name='ua-c'/>
    </disk>
  </devices>
</domain>`
	moved, err := MovedDisks(text, []MovedDisk{
		{Alias: "ua-a", Path: "/dev/a", Block: true},
		{Alias: "ua-b", Path: "/claims/b/disk.img"},
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := WithImages(text, moved)
	if err != nil {
		t.Fatal(err)
	}
	var domain libvirtxml.Domain
	if err := domain.Unmarshal(out); err != nil {
		t.Fatal(err)
	}
	disks := domain.Devices.Disks
	if s := disks[0].Source; s.Block == nil || s.Block.Dev != "/dev/a" || s.File != nil {
		t.Errorf("vda: %+v", s)
	}
	if s := disks[1].Source; s.File == nil || s.File.File != "/claims/b/disk.img" || s.Block != nil {
		t.Errorf("vdb: %+v", s)
	}
	if s := disks[2].Source; s.File == nil || s.File.File != "/claims/c/disk.img" {
		t.Errorf("vdc, which stays: %+v", s)
	}
	if got, err := MovedDisks(text, []MovedDisk{{Alias: "ua-none"}}); err == nil {
		t.Errorf("a disk that the domain does not have: %v", got)
	}
	if got, err := MovedDisks("no XML", nil); err != nil || got != nil {
		t.Errorf("nothing moves: %v, %v", got, err)
	}
}
