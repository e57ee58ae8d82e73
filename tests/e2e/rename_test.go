//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

// A guest that is renamed is the same: its claim, its TPM and EFI variables, its UUID and its host name. The VM of the
// old name is gone, and its claim of state belongs to the new one.
func TestRename(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	c.claim(t, ns, "data", corev1.PersistentVolumeBlock)
	g := c.create(t, newVM(ns, "before", v1.RunStrategyManual, withClaim("data"), withFirmware(true, true),
		withUserData("#cloud-config\nuser: root\npassword: tiny\n")))
	g.waitStatus(t, 10*time.Second, v1.VirtualMachineStatusStopped)
	const device = "$(for d in /sys/block/vd*; do [ \"$(cat $d/serial)\" = DATA ] && echo /dev/${d##*/}; done)"
	g.virtctl(t, nil, "-n", ns, "start", g.name)
	g.waitLogin(t)
	con := g.shell(t, tpm)
	con.run(t, "echo kept-data | dd of="+device+" bs=512 count=1 conv=sync 2>/dev/null; sync")
	expectText(t, con, "nv define", "00000000")
	expectText(t, con, "nv write sealed-1", "00000000")
	con.run(t, `printf '\7\0\0\0kept-1' > $variable`)
	host := con.run(t, "hostname")
	uuid := con.run(t, "cat /sys/class/dmi/id/product_uuid")
	claim := g.awaitStateClaim(t)
	g.virtctl(t, nil, "-n", ns, "stop", g.name)
	g.waitGone(t, 120*time.Second)
	g.waitStatus(t, 10*time.Second, v1.VirtualMachineStatusStopped) // which virt-controller writes then

	g.virtctl(t, nil, "-n", ns, "rename", g.name, "after", "--yes", "--timeout=120s")
	renamed := *g
	renamed.name = "after"
	vm := renamed.vm(t)
	if strategy, err := vm.RunStrategy(); err != nil || strategy != v1.RunStrategyManual {
		t.Errorf("run strategy %s, %v", strategy, err)
	}
	var old v1.VirtualMachine
	if err := g.Client.Get(t.Context(), g.key(), &old); err == nil {
		t.Errorf("VM %s is still there: %+v", g.name, old.ObjectMeta)
	}
	if claims := g.stateClaims(t); len(claims) != 1 || claims[claim] != "after" {
		t.Errorf("claims of state %v, want %s alone, of VM after", claims, claim)
	}

	renamed.virtctl(t, nil, "-n", ns, "start", renamed.name)
	renamed.waitLogin(t)
	con = renamed.shell(t, tpm)
	if got := con.run(t, "dd if="+device+" bs=9 count=1 2>/dev/null"); got != "kept-data" {
		t.Errorf("the disk holds %q", got)
	}
	expectText(t, con, "nv read", "sealed-1")
	expectText(t, con, "tail -c6 $variable", "kept-1")
	expectText(t, con, "hostname", host)
	if got := con.run(t, "cat /sys/class/dmi/id/product_uuid"); !strings.EqualFold(got, uuid) {
		t.Errorf("UUID %s, was %s", got, uuid)
	}

	// The state's claim goes with the VM, as it would have with the old one; the user's stays.
	renamed.virtctl(t, nil, "-n", ns, "delete", renamed.name, "--wait", "--timeout=120s")
	eventually(t, bootTime, "the claim of state goes", func() string {
		if claims := g.stateClaims(t); len(claims) > 0 {
			return fmt.Sprintf("claims %v", claims)
		}
		return ""
	})
	var data corev1.PersistentVolumeClaim
	key := g.key()
	key.Name = "data"
	if err := g.Client.Get(t.Context(), key, &data); err != nil || data.DeletionTimestamp != nil {
		t.Errorf("the claim of data: %v, deleted %v", err, data.DeletionTimestamp)
	}
}
