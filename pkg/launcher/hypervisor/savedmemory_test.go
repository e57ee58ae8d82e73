package hypervisor

import (
	"strings"
	"testing"
)

func TestMemorySnapshot(t *testing.T) {
	const domain = `<domain type='qemu'><devices>
<disk type='file' device='disk'><target dev='vda' bus='virtio'/></disk>
<disk type='file' device='cdrom'><target dev='sda' bus='sata'/></disk>
<interface type='ethernet'><target dev='tap0'/></interface></devices></domain>`
	got, err := MemorySnapshot(domain, "/claim/memory")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`<memory snapshot="external" file="/claim/memory">`, `<disk name="vda" snapshot="no">`,
		`<disk name="sda" snapshot="no">`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in\n%s", want, got)
		}
	}
	if n := strings.Count(got, "<disk "); n != 2 {
		t.Errorf("%d disks in\n%s", n, got)
	}
	if _, err := MemorySnapshot("<domain", "/claim/memory"); err == nil {
		t.Error("broken XML is taken")
	}
}
