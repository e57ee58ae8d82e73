//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// outcome is where the guest is after a migration in which something has failed.
type outcome string

const (
	stays outcome = "stays"
	moves outcome = "moves"
	// either: it depends on what was faster; but it is one of them.
	either outcome = "stays or moves"
	// ends: the only guest there was has been killed; its VM starts it again.
	ends outcome = "ends"
)

// faults is the table: what is killed or cut, by the stage of the migration at which that happens. The stages are
// held by stopping (SIGSTOP) the one who would do the next step; see stages.
var faults = map[string]map[string]outcome{
	// The target pod has no node.
	"scheduling": {
		"source handler": moves, "target handler": moves, "controller": moves, "source libvirtd": moves,
		"cancel": stays, "source QEMU": ends, "source launcher": ends,
	},
	// The target's launcher does not answer yet.
	"preparing": {
		"source handler": moves, "target handler": moves, "controller": moves, "source libvirtd": moves,
		"target launcher": stays, "cancel": stays, "source QEMU": ends, "source launcher": ends,
	},
	// The target waits for the guest, and the source's launcher does not take up its migration.
	"ready": {
		"source handler": either, "target handler": either, "controller": moves, "source libvirtd": either,
		"connection":      either,
		"target launcher": stays, "cancel": stays, "source QEMU": ends, "source launcher": ends,
	},
	// Memory is being copied, and the target's QEMU does not take it.
	"copying": {
		"source handler": stays, "target handler": stays, "controller": moves, "connection": stays,
		"source libvirtd": stays,
		"target libvirtd": stays, "target QEMU": stays, "target launcher": stays, "cancel": stays,
		"source QEMU": ends, "source launcher": ends,
	},
	// All of it is copied, and libvirt at the target does not answer that the guest may run there.
	"finishing": {
		"source handler": stays, "target handler": stays, "controller": moves, "connection": stays,
		"source libvirtd": either,
		"target libvirtd": stays, "target QEMU": stays, "target launcher": stays, "cancel": either,
		"source launcher": ends,
	},
	// The guest is at both sides, and the target's launcher has yet to say so: the source stands still, complete.
	"arrived": {
		"source handler": either, "target handler": either, "controller": either, "connection": either,
		"source libvirtd": either,
		"target libvirtd": either, "cancel": either, "target QEMU": stays, "target launcher": stays,
		"source launcher": ends,
	},
	// It runs at the target.
	"moved": {
		"source handler": moves, "target handler": moves, "controller": moves, "target libvirtd": moves,
		"source launcher": moves,
	},
}

// short are those that runs without -long have: the ones that have gone wrong, or in which most takes part.
var short = map[string][]string{
	"scheduling": {"cancel"},
	"preparing":  {"target handler"},
	"copying":    {"controller", "source handler", "target libvirtd", "connection", "cancel"},
	"finishing":  {"target launcher", "source handler", "source libvirtd"},
	"arrived":    {"source handler", "target QEMU", "target launcher"},
}

// stageOrder is the order in which the stages come about.
var stageOrder = []string{"scheduling", "preparing", "ready", "copying", "finishing", "arrived", "moved"}

// victimOrder is that in which they are taken: what ends the guest, which costs a boot, last.
var victimOrder = []string{
	"source handler", "target handler", "controller", "connection", "source libvirtd", "target libvirtd", "target QEMU",
	"target launcher", "cancel", "source launcher", "source QEMU",
}

// wanted says whether a case is to be run: VIRTKIT_E2E_FAULTS is "stage/victim,…", either of which may be empty.
func wanted(stage, victim string) bool { return picked("VIRTKIT_E2E_FAULTS", short, stage, victim) }

// picked says whether a case of a table is to be run: the variable's list names it, or -long or the table's short one
// when there is no list. With -short that is the first of each stage.
func picked(variable string, short map[string][]string, stage, victim string) bool {
	list := os.Getenv(variable)
	if list == "" {
		at := slices.Index(short[stage], victim)
		return *long || at == 0 || at > 0 && !testing.Short()
	}
	for one := range strings.SplitSeq(list, ",") {
		s, v, _ := strings.Cut(one, "/")
		if (s == "" || s == stage) && (v == "" || v == victim) {
			return true
		}
	}
	return false
}

// Whatever is killed or cut while a guest moves: one guest runs afterwards, its disks are what it has written, nothing
// is left at the other side, and the next migration works. Not parallel: it disturbs every other test.
func TestMigrationFaults(t *testing.T) {
	f := newFaulty(t)
	for _, stage := range stageOrder {
		for _, victim := range victimOrder {
			want, ok := faults[stage][victim]
			if !ok || !wanted(stage, victim) {
				continue
			}
			passed := t.Run(stage+"/"+victim, func(t *testing.T) { f.run(t, stage, victim, want) })
			if !passed {
				t.FailNow() // the next would begin from something unknown
			}
		}
	}
	m := f.migrate(t, "last")
	f.waitMigration(t, m, v1.MigrationSucceeded)
	f.sound(t, m.Status.MigrationState.TargetNode)
}

// A guest moves to and fro, and what carries it does not grow. Not parallel where that is measured.
func TestMigrationToAndFro(t *testing.T) {
	skipInShort(t)
	c := theCluster
	times := 20
	if !*long {
		times = 4
		t.Parallel()
	}
	f := newFaulty(t)
	var before map[string]usage
	var took []time.Duration
	for i := range times {
		begun := time.Now()
		m := f.migrate(t, fmt.Sprintf("time-%d", i))
		f.waitMigration(t, m, v1.MigrationSucceeded)
		took = append(took, time.Since(begun).Round(time.Millisecond))
		if i == 1 {
			before = c.usage(t, names.VirtHandler) // what is made once is made
		}
	}
	slices.Sort(took)
	t.Logf("from making it to Succeeded: p50 %v, p95 %v, of %v", took[len(took)/2], took[(len(took)*19+19)/20-1], took)
	f.sound(t, f.vmi(t).Status.NodeName)
	if !*long {
		return
	}
	eventually(t, 60*time.Second, "virt-handlers are as they were", func() string {
		for pod, now := range c.usage(t, names.VirtHandler) {
			if was := before[pod]; now.files > was.files+5 || now.memory > was.memory+16<<20 {
				return pod + " has " + now.String() + ", and had " + was.String()
			}
		}
		return ""
	})
}
