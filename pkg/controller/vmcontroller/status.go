package vmcontroller

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// reasonNoVMI is the reason of Ready when there is no VMI; KubeVirt's word.
const reasonNoVMI = "VMINotExists"

// reasonUnfinished is the reason of ManualRecoveryRequired.
const reasonUnfinished = "VolumeMigrationUnfinished"

// Status returns the VM's status as it should be, given what was decided. view.VMI is the VMI as it is after the
// decision was carried out.
func Status(view View, decision Decision) v1.VirtualMachineStatus {
	vm := view.VM
	status := *vm.Status.DeepCopy()
	status.StateChangeRequests = decision.Requests
	status.StartFailure = decision.StartFailure
	if view.Referred {
		status.InstancetypeRef, status.PreferenceRef = view.InstancetypeRef, view.PreferenceRef
	}
	status.Created = view.VMI != nil
	status.Ready = false
	status.DesiredGeneration = vm.Generation
	status.ObservedGeneration = 0
	if view.VMI != nil {
		status.Ready = conditions.True(view.VMI.Status.Conditions, v1.VirtualMachineInstanceReady)
		status.ObservedGeneration = observedGeneration(view.VMI)
	}
	if strategy, err := vm.RunStrategy(); err == nil && vm.DeletionTimestamp == nil && started(view, strategy) {
		status.RunStrategy = strategy
	}
	status.MemoryDumpRequest = dumpRequest(view)
	if vm.DeletionTimestamp == nil && !view.Unsettled {
		status.VolumeSnapshotStatuses = view.Snapshotted
	}
	status.VolumeUpdateState = volumemigration.Noted(vm, view.VMI)
	setConditions(&status, view)
	status.PrintableStatus = Printable(view, decision)
	return status
}

// started reports whether the strategy may be recorded: one that starts a VM by itself once counts
// as begun only when there is a VMI.
func started(view View, strategy v1.VirtualMachineRunStrategy) bool {
	switch strategy {
	case v1.RunStrategyRerunOnFailure, v1.RunStrategyOnce:
		return view.VMI != nil
	}
	return true
}

func setConditions(status *v1.VirtualMachineStatus, view View) {
	list := &status.Conditions
	set := func(condition v1.VirtualMachineCondition) { conditions.Set(list, condition, view.Now) }
	ready := v1.VirtualMachineCondition{
		Type: v1.VirtualMachineReady, Status: corev1.ConditionFalse, Reason: reasonNoVMI, Message: "VMI does not exist",
	}
	if view.VMI != nil {
		ready.Reason, ready.Message = v1.GuestNotRunningReason, "Guest VM is not reported as running"
		if mirrored := mirror(view.VMI, v1.VirtualMachineInstanceReady, v1.VirtualMachineReady); mirrored != nil {
			ready = *mirrored
		}
	}
	set(ready)

	mirrorOthers(list, view)

	switch failed := mirror(view.VMI, v1.VirtualMachineInstanceSynchronized, v1.VirtualMachineFailure); {
	case view.Failure != "":
		set(v1.VirtualMachineCondition{
			Type: v1.VirtualMachineFailure, Status: corev1.ConditionTrue, Reason: view.FailureReason,
			Message: view.Failure,
		})
	case failed != nil && failed.Status == corev1.ConditionFalse:
		failed.Status = corev1.ConditionTrue
		set(*failed)
	case life.Alive(view.VMI) && pullFailure(view.Pods) != nil:
		set(*pullFailure(view.Pods))
	case view.sandboxFailure() != nil:
		set(*view.sandboxFailure())
	default:
		conditions.Remove(list, v1.VirtualMachineFailure)
	}

	if volumemigration.Unfinished(view.VM, view.VMI) {
		set(v1.VirtualMachineCondition{
			Type: v1.VirtualMachineManualRecoveryRequired, Status: corev1.ConditionTrue, Reason: reasonUnfinished,
			Message: volumemigration.RecoveryMessage(status.VolumeUpdateState),
		})
	} else {
		conditions.Remove(list, v1.VirtualMachineManualRecoveryRequired)
	}

	if life.Alive(view.VMI) && restartRequired(view) {
		set(v1.VirtualMachineCondition{
			Type: v1.VirtualMachineRestartRequired, Status: corev1.ConditionTrue, Reason: "RestartRequired",
			Message: restartMessage(view),
		})
	} else {
		conditions.Remove(list, v1.VirtualMachineRestartRequired)
	}
}

// pullFailure returns the Failure of an image that cannot be had, in the kubelet's words; nil when there is none. It is
// reported here because a VMI whose pod has a node is virt-handler's, which knows nothing of images.
func pullFailure(pods []*corev1.Pod) *v1.VirtualMachineCondition {
	for _, pod := range pods {
		reason := imageTrouble(pod)
		if reason == "" {
			continue
		}
		return &v1.VirtualMachineCondition{
			Type: v1.VirtualMachineFailure, Status: corev1.ConditionTrue, Reason: reason,
			Message: waitingState(pod).Message,
		}
	}
	return nil
}

// mirrorOthers gives the VM all other conditions of its VMI, as KubeVirt does: who waits for a VM's AgentConnected or
// LiveMigratable looks there. Without a VMI it has none of them; KubeVirt leaves those of the last one.
func mirrorOthers(list *[]v1.VirtualMachineCondition, view View) {
	var has []v1.VirtualMachineConditionType
	if view.VMI != nil {
		for _, c := range view.VMI.Status.Conditions {
			if to := v1.VirtualMachineConditionType(c.Type); conditions.Mirrored(to) {
				has = append(has, to)
				conditions.Set(list, *mirror(view.VMI, c.Type, to), view.Now)
			}
		}
	}
	*list = slices.DeleteFunc(*list, func(c v1.VirtualMachineCondition) bool {
		return conditions.Mirrored(c.Type) && !slices.Contains(has, c.Type)
	})
}

// mirror turns a VMI's condition into a VM's; nil when the VMI has none.
func mirror(
	instance *v1.VirtualMachineInstance, from v1.VirtualMachineInstanceConditionType, to v1.VirtualMachineConditionType,
) *v1.VirtualMachineCondition {
	if instance == nil {
		return nil
	}
	condition := conditions.Find(instance.Status.Conditions, from)
	if condition == nil {
		return nil
	}
	return &v1.VirtualMachineCondition{
		Type: to, Status: condition.Status, Reason: condition.Reason, Message: condition.Message,
		LastTransitionTime: condition.LastTransitionTime,
	}
}
