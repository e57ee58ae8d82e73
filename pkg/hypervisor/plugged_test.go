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
	if err != nil || !strings.Contains(got, `<requested unit="b">536870912</requested>`) || !strings.Contains(got, `base="0x100000000"`) || strings.Contains(got, "<current") {
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
