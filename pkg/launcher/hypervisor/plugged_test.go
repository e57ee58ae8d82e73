package hypervisor

import (
	"strings"
	"testing"
)

const grown = `<domain type="kvm">
  <cputune><vcpupin vcpu="0" cpuset="3"/><emulatorpin cpuset="4"/></cputune>
  <devices>
    <memory model="virtio-mem">
      <target>
        <size unit="KiB">786432</size><node>0</node><block unit="KiB">2048</block>
        <requested unit="KiB">262144</requested><current unit="KiB">131072</current>
        <address base="0x100000000"/>
      </target>
      <alias name="ua-virtio-mem"/>
    </memory>
  </devices>
</domain>`

func TestRequestedMemory(t *testing.T) {
	got, err := RequestedMemory(grown, 512<<20)
	if err != nil || !strings.Contains(got, `<requested unit="b">536870912</requested>`) ||
		!strings.Contains(got, `base="0x100000000"`) || strings.Contains(got, "<current") {
		t.Errorf("%s, %v", got, err)
	}
	for _, text := range []string{"<domain/>", "<domain><devices/></domain>", "<"} {
		if got, err := RequestedMemory(text, 1); err == nil {
			t.Errorf("%s: %s", text, got)
		}
	}
}

func TestWithoutPins(t *testing.T) {
	got, had, err := WithoutPins(grown)
	if err != nil || !had || strings.Contains(got, "pin") || !strings.Contains(got, "virtio-mem") {
		t.Errorf("%s, %v, %v", got, had, err)
	}
	if got, had, err := WithoutPins("<domain/>"); err != nil || had || got != "<domain/>" {
		t.Errorf("no pins: %s, %v, %v", got, had, err)
	}
}

const driven = `<domain type="kvm"><devices>
  <disk type="file" device="cdrom">
    <driver name="qemu" type="raw" cache="writethrough"/><target dev="sda" bus="sata" tray="open"/><readonly/>
    <alias name="ua-cd"/><address type="drive" controller="0" bus="0" target="0" unit="0"/>
  </disk>
  <disk type="file" device="disk"><source file="/a"/><target dev="vda" bus="virtio"/><alias name="ua-root"/></disk>
</devices></domain>`

func TestWithMedium(t *testing.T) {
	const disc = `<disk type="block" device="cdrom"><driver name="qemu" type="qcow2" cache="none"/><source dev="/b"></source><target dev="sdz" bus="sata"/></disk>`
	got, err := WithMedium(driven, "ua-cd", disc)
	for _, part := range []string{
		`<source dev="/b"`, `type="block"`, `cache="writethrough"`, `type="qcow2"`, `dev="sda"`, `name="ua-cd"`,
		`unit="0"`,
	} {
		if !strings.Contains(got, part) {
			t.Errorf("no %s in %s, %v", part, got, err)
		}
	}
	full := strings.Replace(driven, `<target dev="sda"`, `<source file="/c"/><target dev="sda"`, 1)
	if got, err := WithMedium(full, "ua-cd", ""); err != nil || strings.Contains(got, "<source") ||
		!strings.Contains(got, "<readonly") {
		t.Errorf("taken out: %s, %v", got, err)
	}
	for _, wrong := range [][3]string{
		{driven, "ua-root", ""},
		{driven, "ua-x", ""},
		{"<domain/>", "ua-cd", ""},
		{"<", "ua-cd", ""},
		{driven, "ua-cd", "<"},
	} {
		if got, err := WithMedium(wrong[0], wrong[1], wrong[2]); err == nil {
			t.Errorf("%v: %s", wrong, got)
		}
	}
}
