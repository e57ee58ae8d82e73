package journal

import (
	"fmt"
	"strings"

	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// Step is one machine's part of an undo.
type Step struct {
	Machine Machine
	// Refusal is why nothing is done, a clause; empty when the verb can be taken back.
	Refusal string
}

// State is a machine as it is now, under the name that it was given; any may be nil.
type State struct {
	VM  *v1.VirtualMachine
	VMI *v1.VirtualMachineInstance
	// Restore is the one that the entry made.
	Restore *snapshotv1beta1.VirtualMachineRestore
}

// Plan reports for a machine of an entry whether the verb can be taken back now. It can be where the machine is the
// same and in the state that the verb has led to, and nobody has decided otherwise since.
func Plan(verb lifecycle.Verb, m Machine, now State) Step {
	return Step{Machine: m, Refusal: refusal(verb, m, now)}
}

func refusal(verb lifecycle.Verb, m Machine, now State) string {
	if _, why := Reverse(verb); why != "" {
		return why
	}
	staying := life.Staying(now.VMI)
	if verb.OnInstance() {
		return instanceRefusal(verb, m, now.VMI, staying)
	}
	if now.VM == nil || now.VM.DeletionTimestamp != nil {
		return "it does not exist any more"
	}
	if now.VM.UID != m.UID {
		return "it was deleted since, and is another of the same name now"
	}
	if verb == lifecycle.Rename {
		if now.VMI != nil {
			return fmt.Sprintf("it has an instance; stop it first: `virtctl stop %s -n %s`", m.RenamedTo, m.Namespace)
		}
		return ""
	}
	if verb == lifecycle.RestoreKeep {
		return restoreRefusal(m, now)
	}
	strategy, err := now.VM.RunStrategy()
	if err != nil {
		return err.Error()
	}
	if want := after(verb, m.Before); strategy != want {
		return fmt.Sprintf("its run strategy was changed since: it is %s, not %s", strategy, want)
	}
	pending := len(now.VM.Status.StateChangeRequests) > 0
	switch {
	case verb == lifecycle.Start && !staying && !pending && strategy != v1.RunStrategyAlways:
		return "it is not running any more"
	case verb == lifecycle.Stop && m.Before == v1.RunStrategyOnce:
		return "its run strategy was Once, and a start would make it Always; set spec.runStrategy to Once instead"
	case verb == lifecycle.Stop && staying && strategy != v1.RunStrategyHalted && !pending:
		return "it is running again"
	}
	return ""
}

// restoreRefusal returns why a restore cannot be taken back: only the last one can be, while nothing runs.
func restoreRefusal(m Machine, now State) string {
	if r := now.Restore; r != nil {
		switch done, err := snapshot.Restored(r); {
		case err != nil:
			return err.Error()
		case !done:
			return fmt.Sprintf("restore %s is still under way (%s); wait until it is complete, or take it back with "+
				"`kubectl delete vmrestore %s -n %s`", r.Name, snapshot.RestoreStage(r), r.Name, m.Namespace)
		}
	}
	if r, held := snapshots.RestoreOf(now.VM); held {
		return fmt.Sprintf("restore %s of it is not done; `virtctl why restore/%[1]s -n %s` says what it waits for",
			r, m.Namespace)
	}
	switch by := now.VM.Annotations[snapshots.LastAnnotation]; {
	case m.Restore == "" || !strings.HasPrefix(by, m.Restore+"-"):
		why := "it was restored again since"
		if now.Restore == nil {
			why = "that is deleted, and was not complete, or " + why
		}
		return fmt.Sprintf("its spec is not that of restore %s: %s", m.Restore, why)
	case now.VMI != nil:
		return fmt.Sprintf("it has an instance; stop it first: `virtctl stop %s -n %s`", m.Name, m.Namespace)
	}
	return ""
}

func instanceRefusal(verb lifecycle.Verb, m Machine, vmi *v1.VirtualMachineInstance, staying bool) string {
	switch {
	case !staying:
		return "it is not running any more"
	case vmi.UID != m.InstanceUID:
		return "it was started anew since"
	case verb == lifecycle.Pause && !paused(vmi):
		return "it is not paused any more"
	case verb == lifecycle.Unpause && paused(vmi):
		return "it is paused again"
	}
	return ""
}

func paused(vmi *v1.VirtualMachineInstance) bool {
	return conditions.True(vmi.Status.Conditions, v1.VirtualMachineInstancePaused)
}

// after returns the run strategy that a verb leaves, by KubeVirt's rules.
func after(verb lifecycle.Verb, before v1.VirtualMachineRunStrategy) v1.VirtualMachineRunStrategy {
	switch {
	case verb == lifecycle.Start && before == v1.RunStrategyHalted:
		return v1.RunStrategyAlways
	case verb == lifecycle.Stop && (before == v1.RunStrategyAlways || before == v1.RunStrategyOnce):
		return v1.RunStrategyHalted
	}
	return before
}
