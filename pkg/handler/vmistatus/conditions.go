package vmistatus

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

// Reasons of the condition Paused, as KubeVirt names them.
const (
	ReasonPausedByUser  = "PausedByUser"
	ReasonPausedIOError = names.ReasonPausedIOError
	ReasonPaused        = "Paused"
)

// conditionList is the conditions of a VMI, and what time it is.
type conditionList struct {
	now  time.Time
	list []v1.VirtualMachineInstanceCondition
}

func (c *conditionList) set(
	kind v1.VirtualMachineInstanceConditionType, status corev1.ConditionStatus, reason, message string,
) {
	conditions.Set(&c.list,
		v1.VirtualMachineInstanceCondition{Type: kind, Status: status, Reason: reason, Message: message}, c.now)
}

func (c *conditionList) remove(kind v1.VirtualMachineInstanceConditionType) {
	conditions.Remove(&c.list, kind)
}

func (c *conditionList) setOrRemove(wanted bool, kind v1.VirtualMachineInstanceConditionType, reason, message string) {
	if wanted {
		c.set(kind, corev1.ConditionTrue, reason, message)
	} else {
		c.remove(kind)
	}
}

// notSynchronized is the reason of a Synchronized that is false; KubeVirt's, although it is a sentence.
const notSynchronized = "Synchronizing with the Domain failed."

// running sets the conditions of a guest that runs or is paused.
func running(in Input, c *conditionList) {
	switch {
	case in.Failure != nil:
		c.set(v1.VirtualMachineInstanceSynchronized, corev1.ConditionFalse, notSynchronized, in.Failure.Message)
	case in.Unsized != "":
		c.set(v1.VirtualMachineInstanceSynchronized, corev1.ConditionFalse, notSynchronized,
			"size of the guest: "+in.Unsized)
	case in.Unlinked != "":
		c.set(v1.VirtualMachineInstanceSynchronized, corev1.ConditionFalse, notSynchronized,
			"interfaces of the guest: "+in.Unlinked)
	case in.Unrated != "":
		c.set(v1.VirtualMachineInstanceSynchronized, corev1.ConditionFalse, notSynchronized,
			"rate limits of the guest: "+in.Unrated)
	case in.Unpoliced != "":
		c.set(v1.VirtualMachineInstanceSynchronized, corev1.ConditionFalse, notSynchronized,
			"MultiNetworkPolicies of the guest: "+in.Unpoliced)
	default:
		c.remove(v1.VirtualMachineInstanceSynchronized)
	}
	expanding(in, c)
	if in.Guest == nil {
		return // not attached yet after a restart: what was known stays
	}
	paused := in.Guest.Lifecycle == launcherpb.Lifecycle_LIFECYCLE_PAUSED
	reason, message := pausedBecause(in.Guest.Reason)
	c.setOrRemove(paused, v1.VirtualMachineInstancePaused, reason, message)
	switch {
	case paused:
		c.set(v1.VirtualMachineInstanceReady, corev1.ConditionFalse, v1.GuestNotRunningReason, "The guest is paused.")
	case in.Pod != nil && in.Pod.DeletionTimestamp != nil && in.VMI.DeletionTimestamp == nil: // news only then
		c.set(v1.VirtualMachineInstanceReady, corev1.ConditionFalse, v1.PodTerminatingReason,
			"The launcher's pod is terminating.")
	case !answers(in.VMI, in.Pod):
		c.set(v1.VirtualMachineInstanceReady, corev1.ConditionFalse, ReasonNotReady,
			"The readiness probe does not pass; the events of pod "+in.Pod.Name+" say how it fails.")
	default:
		c.set(v1.VirtualMachineInstanceReady, corev1.ConditionTrue, "", "")
	}
	c.setOrRemove(in.Guest.AgentConnected, v1.VirtualMachineInstanceAgentConnected, "", "")
	agentSupport(in.VMI, in.Guest, c)
	credentials(in.Guest.AgentCredentials, c)
	c.setOrRemove(in.Guest.Emulation, names.ConditionSoftwareEmulation, "EmulatedCPU",
		"The guest's CPU is emulated in software (TCG), which is many times slower than KVM: the node has no "+
			"hardware virtualization to offer, or useEmulation is set.")
	migratable(in.VMI, in.Pod, in.Plan, in.Guest.Emulation, c)
	mustMove(in, c)
}

// ReasonNotReady is the reason of a VMI that is not Ready because its readiness probe does not pass; the kubelet's own
// word for it.
const ReasonNotReady = "ContainersNotReady"

// answers reports whether the guest passes its readiness probe, if it has one.
func answers(vmi *v1.VirtualMachineInstance, pod *corev1.Pod) bool {
	if vmi.Spec.ReadinessProbe == nil || pod == nil {
		return true
	}
	return conditions.True(pod.Status.Conditions, corev1.ContainersReady)
}

// evacuating sets the condition that the guest is to leave its node.
func evacuating(next *v1.VirtualMachineInstanceStatus, c *conditionList) {
	node := next.EvacuationNodeName
	c.setOrRemove(node != "" && node == next.NodeName, v1.VirtualMachineInstanceEvictionRequested,
		v1.VirtualMachineInstanceReasonEvictionRequested, "The guest was asked to leave node "+node+".")
}

func pausedBecause(reason string) (string, string) {
	switch reason {
	case names.ReasonHandoff:
		return names.ReasonPausedToMove, "The guest stands still: the target of its migration was asked to start it, " +
			"and has not said yet that it runs."
	case "user", "":
		return ReasonPausedByUser, "The guest was paused by a user."
	case "ioerror", "io-error":
		return ReasonPausedIOError, "The guest was paused because of an I/O error on one of its disks."
	case "paused", "unknown":
		return ReasonPaused, "The guest is paused."
	}
	return ReasonPaused, "The guest is paused: " + clean(reason) + "."
}
