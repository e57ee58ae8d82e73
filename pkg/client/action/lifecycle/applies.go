package lifecycle

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// Applies reports whether a verb makes sense for a machine as it is, and if not why, in a clause: "it is not running".
// It decides of the machines that a selector found: `stop --all` is about those that run. A machine that was named is
// asked in any case, and the server's answer counts. vm or vmi may be nil; withDisks is Options.WithDisks. migrating
// says that a migration of it is there that is not over: the instance knows of it only when its target pod is ready.
func Applies(
	verb Verb, vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, withDisks, migrating bool,
) (bool, string) {
	if vm == nil && !verb.TakesInstance() {
		return false, "it has no VirtualMachine"
	}
	if verb == Delete {
		if deleting(vm, vmi) {
			return false, "it is being deleted"
		}
		return true, ""
	}
	staying := life.Staying(vmi)
	switch verb {
	case Start:
		if staying && conditions.True(vmi.Status.Conditions, v1.VirtualMachineInstancePaused) {
			return false, "it is paused; unpause lets it run on"
		}
		return applies(!staying, "it is running")
	case Stop, Restart:
		return applies(staying || wanted(verb, vm), "it is not running")
	}
	if !life.Running(vmi) {
		return false, "it is not running"
	}
	paused := conditions.True(vmi.Status.Conditions, v1.VirtualMachineInstancePaused)
	switch verb {
	case Pause:
		return applies(!paused, "it is paused")
	case Unpause:
		return applies(paused, "it is not paused")
	case SoftReboot:
		return applies(!paused, "it is paused")
	case Migrate:
		if migrating || migrations.UnderWay(vmi) {
			return false, "it is migrating"
		}
		if volumemigration.OnlyWithDisks(vmi) {
			return applies(withDisks, "it can be migrated only with its disks (--with-disks)")
		}
		return applies(migrations.Migratable(vmi) && volumemigration.Refusal(vmi) == "", "it cannot be migrated")
	case MigrateCancel:
		return applies(migrating || migrations.UnderWay(vmi), "it is not migrating")
	case EvacuateCancel:
		return applies(vmi.Status.EvacuationNodeName != "", "it is not being evacuated")
	}
	return true, ""
}

func applies(yes bool, why string) (bool, string) {
	if yes {
		return true, ""
	}
	return false, why
}

// wanted reports a machine without a guest that is to have one again, as when it crashes over and over.
func wanted(verb Verb, vm *v1.VirtualMachine) bool {
	if verb != Stop {
		return false
	}
	strategy, err := vm.RunStrategy()
	return err == nil && strategy == v1.RunStrategyAlways
}

func deleting(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) bool {
	var object metav1.Object = vmi
	if vm != nil {
		object = vm
	}
	return object.GetDeletionTimestamp() != nil
}
