//go:build e2e

package e2e

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// end is how a snapshot or a restore ends amid which something failed.
type end string

const (
	done   end = "is done"
	failed end = "fails"
	gone   end = "is gone"
	// Of a snapshot that was not held at its stage: either of the first two.
	over end = "is over"
	// Of a guest that is to be resumed: one of the two.
	resumed end = "is resumed"
	booted  end = "boots"
)

// snapshotFaults is the table of snapshots: what fails, by the stage at which it does. See hardy.snapshotStages and
// hardy.victims.
var snapshotFaults = map[string]map[string]end{
	// The VM is locked, and the content cannot be made.
	"locked": {
		"nothing": done, "controller": done, "handler": done, "api": done, "csi controller": done, "csi node": done,
		"agent": done, "control plane": done, "second": done, "cancel": gone, "deadline": failed, "launcher": done,
		"QEMU": done,
	},
	// The guest is frozen, and no VolumeSnapshot is made.
	"frozen": {
		"controller": done, "handler": done, "api": done, "csi controller": done, "csi node": done, "agent": done,
		"controller away": failed, "both away": failed, "control plane": done, "launcher": done, "QEMU": done,
	},
	// The VolumeSnapshots are made, and nobody cuts them.
	"made": {
		"nothing": done, "controller": done, "handler": done, "api": done, "csi controller": done, "csi node": done,
		"agent":         done,
		"control plane": done, "second": done, "cancel": gone, "deadline": failed, "controller away": failed,
		"change":  done,
		"migrate": done, "launcher": done, "QEMU": done, "restart": done, "delete VM": done,
	},
	// All are cut, and the guest is frozen still.
	"cut": {
		"controller": done, "handler": done, "api": done, "csi controller": done, "csi node": done, "agent": done,
		"control plane": done, "cancel": gone, "launcher": done, "QEMU": done,
	},
	// The guest goes on, and the snapshot does not say that it is ready.
	"thawed": {
		"controller": done, "handler": done, "api": done, "csi controller": done, "csi node": done, "agent": done,
		"control plane": done, "cancel": gone, "launcher": done, "QEMU": done,
	},
	// The agent does not do what it is asked for, from before the snapshot on.
	"asked": {"agent hangs": done, "agent freezes nothing": done},
	// One volume of four is not snapshotted.
	"broken": {"deadline": failed, "cancel": gone},
}

// memoryFaults is the table of snapshots with the guest's memory. See hardy.memoryStages.
var memoryFaults = map[string]map[string]end{
	// The claim for the memory is made, and nobody fills it.
	"claimed": {
		"controller": done, "csi controller": done, "control plane": done, "cancel": gone, "deadline": failed,
		"QEMU": done,
	},
	// The instance has the volume for the memory, and virt-handler does not mount it.
	"plugged": {
		"controller": done, "handler": done, "api": done, "cancel": gone, "deadline": failed, "launcher": done,
	},
	// The guest stands still, and its memory is being written.
	"saving": {
		"controller": done, "handler": done, "api": done, "csi controller": done, "control plane": done, "cancel": gone,
		"launcher": done, "QEMU": done,
	},
	// It is written, and no VolumeSnapshot is made.
	"saved": {"controller": done, "handler": done, "controller away": failed, "launcher": done, "QEMU": done},
	// The VolumeSnapshots are made, and nobody cuts them.
	"made with memory": {
		"controller": done, "handler": done, "control plane": done, "cancel": gone, "deadline": failed,
		"launcher": done, "QEMU": done, "delete VM": done,
	},
	// The guest goes on, and has the volume still.
	"thawed with memory": {"controller": done, "handler": done, "cancel": gone, "launcher": done},
}

// resumeFaults is the table of starts of a VM that was restored with its guest's memory. Whose resume had begun and has
// ended boots: its disks are as it left them. No other does.
var resumeFaults = map[string]map[string]end{
	// The launcher has not been told to start the guest.
	"starting": {"controller": resumed, "handler": resumed, "control plane": resumed, "launcher": resumed},
	// The memory is being read, and it is not on record that the guest goes on.
	"loading": {"controller": resumed, "handler": resumed, "launcher": resumed, "QEMU": resumed},
	// The guest goes on, and its VM does not know it.
	"going": {"controller": resumed, "handler": resumed, "launcher": booted, "QEMU": booted},
}

// restoreFaults is the table of restores to a VM, which is off but for the first two.
var restoreFaults = map[string]map[string]end{
	// The VM runs, and is being stopped.
	"stopping": {"controller": done, "handler": done, "api": done, "control plane": done, "cancel": gone},
	// The claims are made, and nobody fills them.
	"claims": {
		"controller": done, "handler": done, "api": done, "csi controller": done, "csi node": done,
		"control plane": done, "cancel": gone, "start": done,
	},
	// The claims are bound, and the VM is what it was.
	"bound": {
		"controller": done, "handler": done, "api": done, "csi controller": done, "csi node": done,
		"control plane": done, "cancel": gone,
	},
	// The VM is written, and what hangs on it does not follow.
	"written": {
		"controller": done, "api": done, "handler": done, "csi controller": done, "csi node": done,
		"control plane": done, "cancel": gone,
	},
	// The claims are replaced under their names, and nobody fills the new ones.
	"replaced": {
		"controller": done, "handler": done, "api": done, "csi controller": done, "csi node": done,
		"control plane": done, "cancel": gone,
	},
	// The VM runs, and may not be stopped.
	"running": {"nothing": failed},
	// There may be no more claims: one is made, and the others are not.
	"quota": {"nothing": done, "controller": done, "cancel": gone, "cut gone": gone, "snapshot gone": failed},
}

// cloneFaults is the table of clones of the VM while it runs. virt-local's csi controller is the snapshot controller,
// too.
var cloneFaults = map[string]map[string]end{
	// The VolumeSnapshots of the clone's snapshot are made, and nobody cuts them.
	"cutting": {
		"controller": done, "handler": done, "api": done, "csi controller": done, "csi node": done, "agent": done,
		"control plane": done, "cancel": gone, "name taken": failed, "launcher": done, "QEMU": done, "delete VM": done,
	},
	// The claims of the new VM are made, and nobody fills them.
	"filling": {
		"controller": done, "handler": done, "api": done, "csi controller": done, "csi node": done,
		"control plane": done, "cancel": gone, "name taken": failed, "launcher": done, "delete VM": done,
	},
	// The new VM is there, and the clone does not say so.
	"named": {
		"controller": done, "handler": done, "api": done, "csi controller": done, "csi node": done,
		"control plane": done,
	},
}

// shortSnapshots are those that every run has.
var shortSnapshots = map[string][]string{
	"frozen": {"controller away"},
	"made":   {"controller", "csi node"},
	"broken": {"deadline"},
}

var (
	shortMemory   = map[string][]string{"saving": {"controller"}}
	shortClones   = map[string][]string{"cutting": {"name taken"}}
	shortRestores = map[string][]string{"written": {"controller"}}
)

// The orders in which they are taken: what ends the guest, which costs a boot, last, and after all others what takes
// away the snapshot that is restored, or a part of it.
var (
	snapshotStageOrder = []string{"locked", "frozen", "made", "cut", "thawed", "asked", "broken"}
	memoryStageOrder   = []string{"claimed", "plugged", "saving", "saved", "made with memory", "thawed with memory"}
	resumeStageOrder   = []string{"starting", "loading", "going"}
	cloneStageOrder    = []string{"cutting", "filling", "named"}
	restoreStageOrder  = []string{"running", "stopping", "written", "claims", "bound", "replaced", "quota"}

	snapshotVictimOrder = []string{
		"nothing", "controller", "handler", "api", "csi controller", "csi node", "agent", "agent hangs",
		"agent freezes nothing", "control plane",
		"second", "change", "migrate", "cancel", "start", "controller away", "both away", "deadline", "name taken",
		"launcher", "QEMU", "restart", "delete VM", "cut gone",
		"snapshot gone",
	}
)

// chosen says whether a case is to be run: VIRTKIT_E2E_SNAPSHOT_FAULTS is "stage/victim,…", as VIRTKIT_E2E_FAULTS is.
func chosen(short map[string][]string, stage, victim string) bool {
	return picked("VIRTKIT_E2E_SNAPSHOT_FAULTS", short, stage, victim)
}

// Whatever fails while a VM is snapshotted or restored: the guest writes again, no claim and no VolumeSnapshot is left
// that nobody names, all status is true, and what is ready is of one instant. Not parallel: it disturbs every other
// test.
func TestSnapshotFaults(t *testing.T) {
	needSnapshots(t)
	h := newHardy(t)
	each(t, snapshotStageOrder, snapshotFaults, shortSnapshots, "", h.runSnapshot)
	h.memory = true
	each(t, memoryStageOrder, memoryFaults, shortMemory, "memory/", h.runSnapshot)
	h.memory = false
	each(t, cloneStageOrder, cloneFaults, shortClones, "clone/", h.runClone)
	if anyOf(resumeStageOrder, resumeFaults, nil) {
		h.baseMemory(t)
		each(t, resumeStageOrder, resumeFaults, nil, "resume/", h.runResume)
		h.forgetBase(t)
	}
	if anyOf(restoreStageOrder, restoreFaults, shortRestores) {
		h.base(t)
		each(t, restoreStageOrder, restoreFaults, shortRestores, "restore/", h.runRestore)
		if *long { // else TestSnapshots shows that a restored guest starts
			h.startAgain(t)
		}
	}
}

// each runs the chosen cases of a table, until one fails: the next would begin from something unknown.
func each(
	t *testing.T, stages []string, table map[string]map[string]end, short map[string][]string, prefix string,
	run func(t *testing.T, stage, victim string, want end),
) {
	t.Helper()
	for _, stage := range stages {
		for _, victim := range snapshotVictimOrder {
			want, ok := table[stage][victim]
			if !ok || !chosen(short, stage, victim) {
				continue
			}
			if !t.Run(prefix+stage+"/"+victim, func(t *testing.T) { run(t, stage, victim, want) }) {
				t.FailNow()
			}
		}
	}
}

// anyOf says whether a case of a table is to be run.
func anyOf(stages []string, table map[string]map[string]end, short map[string][]string) bool {
	return slices.ContainsFunc(stages, func(stage string) bool {
		return slices.ContainsFunc(snapshotVictimOrder, func(victim string) bool {
			_, ok := table[stage][victim]
			return ok && chosen(short, stage, victim)
		})
	})
}

// newHardy starts the guest.
func newHardy(t *testing.T) *hardy {
	t.Helper()
	c := theCluster
	ns := c.namespace(t, "restricted")
	for _, disk := range written {
		c.claim(t, ns, disk, corev1.PersistentVolumeBlock)
	}
	h := &hardy{faulty: &faulty{guest: &guest{cluster: c, ns: ns, name: "hardy"}}}
	h.boot(t)
	return h
}
