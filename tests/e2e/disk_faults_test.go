//go:build e2e

package e2e

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

// broughtFaults is the table of migrations that bring their guest's disk (virtkit.io/with-disks): what fails, by the
// stage at which it does. See diskMover.stages and diskMover.victims.
var broughtFaults = map[string]map[string]outcome{
	// The new claim is made, and the VM does not name it.
	"claimed": {
		"source handler": moves, "target handler": moves, "controller": moves, "api": moves, "control plane": moves,
		"csi controller": moves, "csi node": moves, "cancel": stays, "source QEMU": ends, "source launcher": ends,
	},
	// The VM names it, and its VMI does not, or has just taken it over.
	"named": {
		"source handler": moves, "target handler": moves, "controller": moves, "api": moves, "control plane": moves,
		"csi controller": moves, "csi node": moves, "cancel": stays, "source QEMU": ends, "source launcher": ends,
	},
	// The target pod has no node, and the new claim is not bound.
	"scheduling": {
		"source handler": moves, "target handler": moves, "controller": moves, "api": moves, "control plane": moves,
		"csi controller": moves, "csi node": moves, "source libvirtd": moves, "cancel": stays, "source QEMU": ends,
		"source launcher": ends,
	},
	// The target's launcher does not answer yet.
	"preparing": {
		"source handler": moves, "target handler": moves, "controller": moves, "control plane": moves,
		"csi node": moves, "source libvirtd": moves, "target launcher": stays, "cancel": stays, "source QEMU": ends,
		"source launcher": ends,
	},
	// The target waits for the guest, and the source's launcher does not take up its migration.
	"ready": {
		"source handler": either, "target handler": either, "controller": moves, "api": moves, "control plane": either,
		"csi node": moves, "connection": either, "source libvirtd": either, "target launcher": stays, "full": stays,
		"cancel": stays, "source QEMU": ends, "source launcher": ends,
	},
	// A part of the disk is copied, and the target's QEMU takes no more.
	"copying": {
		"source handler": stays, "target handler": stays, "controller": moves, "api": moves, "control plane": either,
		"csi controller": moves, "csi node": moves, "connection": stays, "source libvirtd": stays,
		"target libvirtd": stays, "target QEMU": stays, "target launcher": stays, "cancel": stays, "snapshot": moves,
		"plug": moves, "second": moves, "full": stays, "source node": either, "target node": stays,
		"source QEMU": ends, "source launcher": ends,
	},
	// All is copied, and libvirt at the target does not answer that the guest may run there.
	"finishing": {
		"source handler": stays, "target handler": stays, "controller": moves, "api": moves, "control plane": either,
		"connection": stays, "source libvirtd": either, "target libvirtd": stays, "target QEMU": stays,
		"target launcher": stays, "cancel": either, "source launcher": ends,
	},
	// The guest is at both sides, and the target's launcher has yet to say so: the source stands still, complete.
	"arrived": {
		"source handler": either, "target handler": either, "controller": either, "control plane": either,
		"connection": either, "source libvirtd": either, "target libvirtd": either, "cancel": either,
		"target QEMU": stays, "target launcher": stays, "source launcher": ends,
	},
	// It runs at the target, and virt-controller does not know.
	"landed": {
		"source handler": moves, "target handler": moves, "controller": moves, "api": moves, "control plane": moves,
		"csi node": moves, "target libvirtd": moves, "cancel": moves, "source launcher": moves, "target QEMU": ends,
	},
}

// exchangedFaults is the table of VMs that name another claim: virt-controller makes migrations until the disk is
// copied, or the VM names the old claim again.
var exchangedFaults = map[string]map[string]outcome{
	"named": {
		"source handler": moves, "target handler": moves, "controller": moves, "api": moves, "control plane": moves,
		"csi controller": moves, "csi node": moves, "cancel": stays, "source QEMU": ends, "source launcher": ends,
	},
	"scheduling": {
		"source handler": moves, "target handler": moves, "controller": moves, "api": moves, "control plane": moves,
		"csi controller": moves, "csi node": moves, "source libvirtd": moves, "cancel": stays, "source QEMU": ends,
		"source launcher": ends,
	},
	"preparing": {
		"source handler": moves, "target handler": moves, "controller": moves, "control plane": moves,
		"csi node": moves, "source libvirtd": moves, "target launcher": moves, "cancel": stays, "source QEMU": ends,
		"source launcher": ends,
	},
	"ready": {
		"source handler": moves, "target handler": moves, "controller": moves, "api": moves, "control plane": moves,
		"csi node": moves, "connection": moves, "source libvirtd": moves, "target launcher": moves, "cancel": stays,
		"source QEMU": ends, "source launcher": ends,
	},
	"copying": {
		"source handler": moves, "target handler": moves, "controller": moves, "api": moves, "control plane": moves,
		"csi controller": moves, "csi node": moves, "connection": moves, "source libvirtd": moves,
		"target libvirtd": moves, "target QEMU": moves, "target launcher": moves, "cancel": stays, "another": moves,
		"snapshot": moves, "plug": moves, "source node": moves, "target node": moves, "source QEMU": ends,
		"source launcher": ends,
	},
	"finishing": {
		"source handler": moves, "target handler": moves, "controller": moves, "api": moves, "control plane": moves,
		"connection": moves, "source libvirtd": moves, "target libvirtd": moves, "target QEMU": moves,
		"target launcher": moves, "cancel": either, "source launcher": ends,
	},
	"arrived": {
		"source handler": moves, "target handler": moves, "controller": moves, "control plane": moves,
		"connection": moves, "source libvirtd": moves, "target libvirtd": moves, "target QEMU": moves,
		"target launcher": moves, "cancel": either, "source launcher": ends,
	},
	"landed": {
		"source handler": moves, "target handler": moves, "controller": moves, "api": moves, "control plane": moves,
		"csi node": moves, "target libvirtd": moves, "source launcher": moves, "target QEMU": ends,
	},
}

// Those that every run has.
var (
	shortBrought   = map[string][]string{"ready": {"full"}}
	shortExchanged = map[string][]string{"copying": {"controller"}}
)

var (
	diskStageOrder = []string{
		"claimed", "named", "scheduling", "preparing", "ready", "copying", "finishing", "arrived", "landed",
	}
	diskVictimOrder = []string{
		"source handler", "target handler", "controller", "api", "csi controller", "csi node", "control plane",
		"connection", "source libvirtd", "target libvirtd", "target launcher", "full", "cancel", "another", "snapshot",
		"plug", "second", "source node", "target node", "target QEMU", "source launcher", "source QEMU",
	}
)

// Whatever fails while a guest's disk is copied to another claim: one guest runs afterwards, on the claim that has its
// data, which is whole; no claim is left that nobody names, and all status is true. Not parallel: it disturbs every
// other test.
func TestDiskFaults(t *testing.T) {
	needSnapshots(t) // of the driver that has the classes, too
	d := newDiskMover(t)
	d.each(t, "brought", broughtFaults, "VIRTKIT_E2E_BROUGHT_FAULTS", shortBrought)
	d.exchanged = true
	d.each(t, "exchanged", exchangedFaults, "VIRTKIT_E2E_EXCHANGED_FAULTS", shortExchanged)
	t.Run("too small", d.tooSmall)
}

// each runs the picked cases of a table, until one fails: the next would begin from something unknown.
func (d *diskMover) each(
	t *testing.T, name string, table map[string]map[string]outcome, variable string, short map[string][]string,
) {
	t.Helper()
	for _, stage := range diskStageOrder {
		for _, victim := range diskVictimOrder {
			want, ok := table[stage][victim]
			if !ok || !picked(variable, short, stage, victim) {
				continue
			}
			if !t.Run(name+"/"+stage+"/"+victim, func(t *testing.T) { d.run(t, stage, victim, want) }) {
				t.FailNow()
			}
		}
	}
}

// Each case of the tables is one that is run.
func TestDiskFaultsAreRun(t *testing.T) {
	d := &diskMover{faulty: &faulty{guest: &guest{}}}
	stages, victims := d.stages(), d.victims()
	for _, table := range []map[string]map[string]outcome{broughtFaults, exchangedFaults} {
		for stage, cases := range table {
			if stages[stage] == nil || !slices.Contains(diskStageOrder, stage) {
				t.Errorf("stage %s is never come to", stage)
			}
			for victim := range cases {
				if victims[victim] == nil || !slices.Contains(diskVictimOrder, victim) {
					t.Errorf("%s is never a victim", victim)
				}
			}
		}
	}
}

// newDiskMover starts the guest.
func newDiskMover(t *testing.T) *diskMover {
	t.Helper()
	c := theCluster
	ns := c.namespace(t, "restricted")
	c.classClaim(t, ns, "disk", "local-node", corev1.PersistentVolumeFilesystem, "64Mi")
	d := &diskMover{faulty: &faulty{guest: &guest{cluster: c, ns: ns, name: "carrier"}}}
	d.make = d.begins
	d.create(t, newVM(ns, d.name, v1.RunStrategyAlways, withDataOn("disk"), withEmptyDisk(),
		withUserData("#cloud-config\nuser: root\npassword: tiny\nruncmd:\n"+
			"- records write DATA EMPTY >/dev/null 2>&1 &\n"), func(vm *v1.VirtualMachine) {
			vm.Spec.Template.ObjectMeta.Labels["mover"] = ns
			vm.Spec.UpdateVolumesStrategy = nil // virtkit sets it
		}))
	d.waitLogin(t)
	d.in(t, "sh", "-c", onData+"dd if=/dev/urandom of=$D bs=64k seek=512 count=400 2>/dev/null && sync")
	d.sum = d.in(t, "sh", "-c", onData+stillSum)
	d.whole(t, d.vmi(t).Status.NodeName)
	return d
}
