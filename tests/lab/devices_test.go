//go:build lab

package lab

import (
	"strings"
	"testing"
)

// TestDeviceRules: a process in the launcher's control group, with all rights otherwise, opens the launcher's own
// devices and no others. Outside of the group it opens all.
func TestDeviceRules(t *testing.T) {
	own := []string{"/dev/null", "/dev/zero", "/dev/urandom", "/dev/kvm", "/dev/net/tun"}
	others := []string{
		"/dev/vda", "/dev/vdb", "/dev/nvme0n1", "/dev/sda", "/dev/mem", "/dev/kmsg", "/dev/ttyS0",
		"/dev/loop-control", "/dev/hwrng", "/dev/rtc0",
	}
	// Of a device that the machine does not have nothing is said.
	const try = `for d in %s; do [ -e $d ] || continue; if (: <$d) 2>/dev/null; then echo $d; fi; done`
	var there []string
	all := strings.Join(append(append([]string{}, own...), others...), " ")
	for d := range strings.FieldsSeq(inside(t, try, all)) {
		there = append(there, d)
	}
	if len(there) < len(own)+5 {
		t.Fatalf("outside of the group only %q can be opened: the test would prove nothing", there)
	}
	p := qemu(t, "demo")
	got := strings.Fields(inside(t, "echo $$ >%s/cgroup.procs && "+try, p.group, all))
	if want := strings.Join(own, " "); strings.Join(got, " ") != want {
		t.Errorf("in the launcher's group opened %q, want %q", got, want)
	}
	if inside(t, "bpftool cgroup show %s | grep -c device || true", p.group) == "0" {
		t.Error("no program of device rules is attached to the launcher's group")
	}
}
