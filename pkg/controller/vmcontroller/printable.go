package vmcontroller

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// printables is every printable status with what makes it hold, in the order in which they are tried.
var printables = []struct {
	status v1.VirtualMachinePrintableStatus
	holds  func(View, Decision) bool
}{
	{v1.VirtualMachineStatusTerminating, func(view View, _ Decision) bool { return view.VM.DeletionTimestamp != nil }},
	{v1.VirtualMachineStatusStopping, func(view View, _ Decision) bool {
		return life.Alive(view.VMI) && view.VMI.DeletionTimestamp != nil
	}},
	{v1.VirtualMachineStatusMigrating, func(view View, _ Decision) bool {
		return life.Alive(view.VMI) && migrations.Begun(view.VMI)
	}},
	{v1.VirtualMachineStatusPaused, func(view View, _ Decision) bool {
		return life.Alive(view.VMI) && conditionIs(view.VMI, v1.VirtualMachineInstancePaused, corev1.ConditionTrue, "")
	}},
	{v1.VirtualMachineStatusRunning, func(view View, _ Decision) bool {
		return view.VMI != nil && view.VMI.Status.Phase == v1.Running
	}},
	{v1.VirtualMachineStatusPvcNotFound, func(view View, _ Decision) bool {
		return life.Alive(view.VMI) &&
			conditionIs(view.VMI, v1.VirtualMachineInstanceSynchronized, corev1.ConditionFalse,
				vmicontroller.ReasonFailedPvcNotFound)
	}},
	{v1.VirtualMachineStatusDataVolumeError, func(view View, _ Decision) bool {
		return anyDataVolume(view, func(dv *cdiv1.DataVolume) bool { return claims.Trouble(dv) != "" })
	}},
	{v1.VirtualMachineStatusUnschedulable, func(view View, _ Decision) bool {
		// A claim without a volume makes a pod unschedulable as well; that is another entry's.
		return life.Alive(view.VMI) && !claimPending(view) &&
			conditionIs(view.VMI, v1.VirtualMachineInstanceConditionType(corev1.PodScheduled), corev1.ConditionFalse,
				corev1.PodReasonUnschedulable)
	}},
	{v1.VirtualMachineStatusProvisioning, func(view View, _ Decision) bool {
		return life.Alive(view.VMI) &&
			conditionIs(view.VMI, v1.VirtualMachineInstanceProvisioning, corev1.ConditionTrue, "") ||
			anyDataVolume(view, claims.Provisioning)
	}},
	{v1.VirtualMachineStatusWaitingForVolumeBinding, func(view View, _ Decision) bool {
		return life.Alive(view.VMI) && claimPending(view) || anyDataVolume(view, unbound)
	}},
	{v1.VirtualMachineStatusErrImagePull, func(view View, _ Decision) bool {
		return life.Alive(view.VMI) && waiting(view.Pods, life.ErrImagePull)
	}},
	{v1.VirtualMachineStatusImagePullBackOff, func(view View, _ Decision) bool {
		return life.Alive(view.VMI) && waiting(view.Pods, life.ImagePullBackOff)
	}},
	{v1.VirtualMachineStatusStarting, func(view View, decision Decision) bool {
		if life.Alive(view.VMI) {
			return starting(view.VMI.Status.Phase)
		}
		return decision.Wanted && !view.awaits() && !volumemigration.Unfinished(view.VM, view.VMI) &&
			retryIn(decision.StartFailure, view.Now) == 0
	}},
	{v1.VirtualMachineStatusCrashLoopBackOff, func(view View, decision Decision) bool {
		return !life.Alive(view.VMI) && decision.Wanted && !view.awaits() &&
			!volumemigration.Unfinished(view.VM, view.VMI)
	}},
	{v1.VirtualMachineStatusStopped, func(view View, _ Decision) bool { return !life.Alive(view.VMI) }},
	{v1.VirtualMachineStatusWaitingForReceiver, func(view View, _ Decision) bool {
		return view.VMI.Status.Phase == v1.WaitingForSync
	}},
}

// Printable returns the status that lists show: the first that applies.
func Printable(view View, decision Decision) v1.VirtualMachinePrintableStatus {
	for _, printable := range printables {
		if printable.holds(view, decision) {
			return printable.status
		}
	}
	return v1.VirtualMachineStatusUnknown
}

func starting(phase v1.VirtualMachineInstancePhase) bool {
	switch phase {
	case v1.VmPhaseUnset, v1.Pending, v1.Scheduling, v1.Scheduled:
		return true
	}
	return false
}

// conditionIs compares a condition's status, and its reason unless that is empty.
func conditionIs(
	instance *v1.VirtualMachineInstance, conditionType v1.VirtualMachineInstanceConditionType,
	status corev1.ConditionStatus, reason string,
) bool {
	condition := conditions.Find(instance.Status.Conditions, conditionType)
	return condition != nil && condition.Status == status && (reason == "" || condition.Reason == reason)
}

func claimPending(view View) bool {
	return slices.ContainsFunc(view.Claims, func(claim *corev1.PersistentVolumeClaim) bool {
		return claim.Status.Phase == corev1.ClaimPending
	})
}

func waiting(pods []*corev1.Pod, reason string) bool {
	return slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return waitingReason(pod) == reason })
}

// waitingReason returns why a launcher pod's container does not run yet, or "" when it does. An image that cannot even
// be tried is reported as a failed pull.
func waitingReason(pod *corev1.Pod) string {
	state := waitingState(pod)
	if state == nil {
		return ""
	}
	return cmp.Or(life.ImageTrouble(state.Reason), state.Reason)
}

// waitingState returns the state of a container that does not run yet; nil when all do. The containers beside the
// guest's are made before it, so that the guest's container waits for what one of them waits for.
func waitingState(pod *corev1.Pod) *corev1.ContainerStateWaiting {
	for _, containers := range [][]corev1.ContainerStatus{
		pod.Status.InitContainerStatuses,
		pod.Status.ContainerStatuses,
	} {
		for i := range containers {
			if state := containers[i].State.Waiting; state != nil {
				return state
			}
		}
	}
	return nil
}
