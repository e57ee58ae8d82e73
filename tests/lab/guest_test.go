//go:build lab

package lab

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"
)

// TestGuestHasKVM: the VM demo of `make up` runs under KVM to its login prompt, its agent answers, and programs run in
// it.
func TestGuestHasKVM(t *testing.T) {
	virtctl(t, "wait", "demo", "--for=login", timeout(2*time.Minute))
	if accel := qemu(t, "demo").arg("-accel"); !strings.HasPrefix(accel, "kvm") {
		t.Errorf("QEMU runs with -accel %q", accel)
	}
	virtctl(t, "wait", "demo", "--for=condition=AgentConnected", timeout(time.Minute))
	if got := virtctl(t, "exec", "demo", "--", "uname", "-s"); got != "Linux" {
		t.Errorf("exec: %q", got)
	}
	if cpu := virtctl(t, "exec", "demo", "--", "grep", "-m1", "vendor_id", "/proc/cpuinfo"); !strings.HasSuffix(cpu,
		"AuthenticAMD") {
		t.Errorf("the guest's CPU: %q", cpu)
	}
}

// TestHostModel: the labels of a node and the guests on it have their CPU from one source: the model that libvirt
// starts a guest with is the node's, no feature that the node says such a guest needs is off, and what a guest needs,
// its own node has.
func TestHostModel(t *testing.T) {
	node := instanceOf(t, "demo").Status.NodeName
	cpu := strings.Split(qemu(t, "demo").arg("-cpu"), ",")
	for _, n := range nodes(t) {
		if n.Name != node {
			continue
		}
		models := labelled(&n, v1.HostModelCPULabel)
		if len(models) != 1 || models[0] != strings.TrimSuffix(cpu[0], "-v1") {
			t.Errorf("%s: host-model is %q by its labels; the guest has %q", node, models, cpu)
		}
		if !slices.Contains(labelled(&n, v1.SupportedHostModelMigrationCPU), strings.Join(models, " ")) {
			t.Errorf("%s would not take its own guests", node)
		}
		has := labelled(&n, v1.CPUFeatureLabel)
		for _, needs := range labelled(&n, v1.HostModelRequiredFeaturesLabel) {
			if slices.Contains(cpu, needs+"=off") {
				t.Errorf("%s: guests need %s, but have %q", node, needs, cpu)
			}
			if !slices.Contains(has, needs) {
				t.Errorf("%s would not take its own guests: %s is missing", node, needs)
			}
		}
	}
}
