//go:build lab

package lab

import (
	"strings"
	"testing"
	"time"
)

// TestLiveMigration: the VM demo moves to the other node under KVM, and goes on there as it was.
func TestLiveMigration(t *testing.T) {
	virtctl(t, "wait", "demo", "--for=condition=AgentConnected", timeout(time.Minute))
	const boot = "/proc/sys/kernel/random/boot_id"
	before, from := virtctl(t, "exec", "demo", "--", "cat", boot), instanceOf(t, "demo").Status.NodeName
	began := time.Now()
	virtctl(t, "migrate", "demo", "--wait", timeout(2*time.Minute))
	t.Logf("migrated in %v", time.Since(began).Round(time.Second))
	vmi := instanceOf(t, "demo")
	if vmi.Status.NodeName == from {
		t.Fatalf("demo is still on %s", from)
	}
	if state := vmi.Status.MigrationState; state == nil || !state.Completed || state.Failed {
		t.Errorf("migration state: %+v", state)
	}
	virtctl(t, "wait", "demo", "--for=condition=AgentConnected", timeout(time.Minute))
	if after := virtctl(t, "exec", "demo", "--", "cat", boot); after != before {
		t.Errorf("the guest has booted anew: %s, then %s", before, after)
	}
	if accel := qemu(t, "demo").arg("-accel"); !strings.HasPrefix(accel, "kvm") {
		t.Errorf("on the other node QEMU runs with -accel %q", accel)
	}
}
