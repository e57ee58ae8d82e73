// Package vmistatus computes the status of a VirtualMachineInstance that a node is responsible for, from the launcher's
// report on the guest, the pod, and the network plan. It is pure; virt-handler writes the result when it differs from
// the present status, and emits the events.
package vmistatus

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/launcher/termination"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// Reasons of status.reason when a VMI has failed.
const (
	ReasonGuestCrashed  = names.ReasonGuestCrashed
	ReasonGuestPanicked = names.ReasonGuestPanicked
	ReasonCannotStart   = names.ReasonCannotStart
	ReasonLauncherGone  = names.ReasonLauncherGone
	ReasonLauncherError = names.ReasonLauncherFailed
	ReasonPodEnded      = names.ReasonPodTerminated
	ReasonNotAlive      = "LivenessProbeFailed"
)

// Input is everything a status depends on.
type Input struct {
	VMI *v1.VirtualMachineInstance
	// Pod is the launcher's pod, nil when there is none any more.
	Pod *corev1.Pod
	// Guest is the launcher's last report, nil before its first.
	Guest *launcherpb.GuestState
	// Plan is the network plan that was applied in the pod, nil before.
	Plan *network.Plan
	// Failure is the reason why the guest does not run, nil when nothing is wrong.
	Failure *Failure
	// Volumes holds the state of hotplugged volumes, by name.
	Volumes map[string]Volume
	// Unsized is the reason why a running guest could not be given the size in its VMI, or "" when nothing is wrong.
	Unsized string
	// Unlinked is the reason why a guest's interfaces are not as its VMI says, or "" when nothing is wrong.
	Unlinked string
	// Unrated is the reason why a guest's rate limits are not those of its VMI, or "" when nothing is wrong.
	Unrated string
	// Unpoliced is the reason why other MultiNetworkPolicies than those that hold are in force, or "" when nothing is
	// wrong.
	Unpoliced string
	// Growth says how the guest's disks got the sizes of their claims.
	Growth Growth
	// NeverStarted: the VMI was deleted before its guest was started.
	NeverStarted bool
	// Gone says, when not empty, that the launcher vanished without a last message, and how that showed.
	Gone string
	// Lost says, when not empty, that the guest had left for another node and is nowhere now.
	Lost string
	// StateMoved: the launcher there, which has ended, had the guest's persistent state on its claim.
	StateMoved bool
	// Outgoing is the migration of the guest to another node, nil when there is none.
	Outgoing *Outgoing
	Now      time.Time
}

// Failure is an attempt to start the guest that did not succeed.
type Failure struct {
	Message string
	// Final: trying again cannot help.
	Final bool
}

// Next returns the status that follows. Parts that others own (volume claims, the node to be left, pods)
// stay as they are.
func Next(in Input) v1.VirtualMachineInstanceStatus {
	next := *in.VMI.Status.DeepCopy()
	if in.VMI.IsFinal() {
		return next
	}
	phase, reason, message := phaseOf(in)
	if phase != next.Phase {
		next.Phase = phase
		next.PhaseTransitionTimestamps = append(next.PhaseTransitionTimestamps,
			v1.VirtualMachineInstancePhaseTransitionTimestamp{
				Phase: phase, PhaseTransitionTimestamp: metav1.NewTime(in.Now).Rfc3339Copy(),
			})
		next.Reason = reason
	}
	if in.StateMoved || vmstate.Unsettled(&next) && stateSaved(in) {
		vmstate.Settle(&next)
	}
	conditions := conditionList{now: in.Now, list: next.Conditions}
	switch phase {
	case v1.Running:
		fill(in, &next)
		atSource(in, &next)
		running(in, &conditions)
		evacuating(&next, &conditions)
	case v1.Succeeded, v1.Failed:
		atSource(in, &next)
		conditions.set(v1.VirtualMachineInstanceReady, corev1.ConditionFalse, v1.GuestNotRunningReason, message)
		for _, gone := range []v1.VirtualMachineInstanceConditionType{
			v1.VirtualMachineInstancePaused, v1.VirtualMachineInstanceAgentConnected,
			v1.VirtualMachineInstanceUnsupportedAgent, v1.VirtualMachineInstanceEvictionRequested,
		} {
			conditions.remove(gone)
		}
		if in.Failure != nil && phase == v1.Failed {
			conditions.set(v1.VirtualMachineInstanceSynchronized, corev1.ConditionFalse, notSynchronized,
				in.Failure.Message)
		} else {
			conditions.remove(v1.VirtualMachineInstanceSynchronized)
		}
	default:
		if in.Failure != nil {
			conditions.set(v1.VirtualMachineInstanceSynchronized, corev1.ConditionFalse, notSynchronized,
				in.Failure.Message)
		} else {
			conditions.remove(v1.VirtualMachineInstanceSynchronized)
		}
	}
	next.Conditions = conditions.list
	return next
}

// stateSaved reports whether the guest's persistent state is on the claim of its pod.
func stateSaved(in Input) bool {
	return in.Guest.GetStateSaved() || in.Pod != nil && termination.Of(in.Pod).StateSaved
}

// phaseOf returns the phase, with the reason and sentence for it when it is final.
func phaseOf(in Input) (phase v1.VirtualMachineInstancePhase, reason, message string) {
	switch in.Guest.GetLifecycle() {
	case launcherpb.Lifecycle_LIFECYCLE_SHUTOFF, launcherpb.Lifecycle_LIFECYCLE_DESTROYED:
		return guestOff(in, in.Guest.GetLifecycle(), in.Guest.GetReason())
	case launcherpb.Lifecycle_LIFECYCLE_CRASHED:
		if in.Guest.GetReason() == hypervisor.ReasonPanicked {
			return v1.Failed, ReasonGuestPanicked, "The guest panicked; its console may say why."
		}
		message := "The guest crashed"
		if r := clean(in.Guest.GetReason()); r != "" {
			message += ": " + r
		}
		return v1.Failed, ReasonGuestCrashed, message + "."
	}
	if in.Lost != "" {
		return v1.Failed, ReasonLauncherGone, in.Lost
	}
	if in.NeverStarted {
		return v1.Succeeded, "", "The VirtualMachineInstance was deleted before its guest was started."
	}
	if in.Failure != nil && in.Failure.Final {
		return v1.Failed, ReasonCannotStart, in.Failure.Message
	}
	if in.Pod != nil {
		switch in.Pod.Status.Phase {
		case corev1.PodSucceeded:
			end := lastWord(in.Pod)
			if end.Lifecycle == launcherpb.Lifecycle_LIFECYCLE_MIGRATED {
				return in.VMI.Status.Phase, "", "" // the other node will say that the guest is there
			}
			return guestOff(in, end.Lifecycle, end.Reason)
		case corev1.PodFailed:
			return podFailed(in)
		}
	}
	if in.Gone != "" {
		if in.VMI.DeletionTimestamp != nil {
			return v1.Succeeded, "", in.Gone
		}
		return v1.Failed, ReasonLauncherGone, in.Gone
	}
	switch in.Guest.GetLifecycle() {
	case launcherpb.Lifecycle_LIFECYCLE_RUNNING, launcherpb.Lifecycle_LIFECYCLE_PAUSED,
		launcherpb.Lifecycle_LIFECYCLE_SHUTTING_DOWN:
		return v1.Running, "", ""
	}
	if in.VMI.Status.Phase == v1.Unknown {
		// The node was thought lost. The phase from before counts until the launcher has answered.
		for _, t := range slices.Backward(in.VMI.Status.PhaseTransitionTimestamps) {
			if t.Phase != v1.Unknown {
				return t.Phase, "", ""
			}
		}
		return v1.Scheduled, "", ""
	}
	return in.VMI.Status.Phase, "", ""
}

// guestOff returns the phase of a VMI whose guest has shut down. If that was because its pod was ended (evicted,
// drained) though nobody had deleted the VMI, it failed: the user wanted it to run, and run strategy RerunOnFailure
// starts it again.
func guestOff(in Input, end launcherpb.Lifecycle, reason string) (v1.VirtualMachineInstancePhase, string, string) {
	if reason == names.ReasonTerminated && in.VMI.DeletionTimestamp == nil {
		if in.VMI.Spec.LivenessProbe != nil && in.Pod != nil && in.Pod.DeletionTimestamp == nil &&
			in.Pod.Status.Reason == "" {
			return v1.Failed, ReasonNotAlive,
				"The guest was shut down because its liveness probe failed; the events of pod " + in.Pod.Name +
					" say how."
		}
		return v1.Failed, ReasonPodEnded,
			"The launcher's pod was deleted or evicted, and the guest was shut down with it."
	}
	if end == launcherpb.Lifecycle_LIFECYCLE_DESTROYED {
		return v1.Succeeded, "", "The guest was powered off."
	}
	return v1.Succeeded, "", "The guest has shut down."
}

// lastWord returns the termination message of a pod's launcher, fit for a status.
func lastWord(pod *corev1.Pod) termination.Message {
	end := termination.Of(pod)
	end.Reason = clean(end.Reason)
	return end
}

func podFailed(in Input) (v1.VirtualMachineInstancePhase, string, string) {
	// The kubelet's own reasons: Evicted, DeadlineExceeded, NodeShutdown, …
	if r := in.Pod.Status.Reason; r != "" {
		return v1.Failed, r, strings.TrimSpace("The launcher's pod failed: " + clean(in.Pod.Status.Message))
	}
	for _, c := range in.Pod.Status.ContainerStatuses {
		t := c.State.Terminated
		if c.Name != names.ContainerCompute || t == nil {
			continue
		}
		end := lastWord(in.Pod)
		switch {
		case end.Lifecycle == launcherpb.Lifecycle_LIFECYCLE_CRASHED:
			in.Guest = &launcherpb.GuestState{Lifecycle: end.Lifecycle, Reason: end.Reason}
			return phaseOf(in)
		case t.Reason == "OOMKilled":
			return v1.Failed, t.Reason, "The launcher's container was out of memory."
		}
		message := "The launcher ended: " + t.Reason
		if end.Reason != "" {
			message = "The launcher ended: " + end.Reason
		}
		return v1.Failed, ReasonLauncherError, message
	}
	return v1.Failed, ReasonLauncherError, "The launcher's pod failed."
}

// fill copies what is known of a running guest.
func fill(in Input, next *v1.VirtualMachineInstanceStatus) {
	next.Reason = ""
	next.RuntimeUser = names.User
	if in.Pod != nil {
		for _, c := range in.Pod.Spec.Containers {
			if c.Name == names.ContainerCompute {
				next.LauncherContainerImageVersion = c.Image
			}
		}
		if in.Pod.Status.QOSClass != "" {
			qos := in.Pod.Status.QOSClass
			next.QOSClass = &qos
		}
	}
	next.CurrentCPUTopology = topology(in.VMI.Spec.Domain.CPU, in.Guest.GetVcpus(), next.CurrentCPUTopology)
	if in.Guest == nil {
		return
	}
	if m := clean(in.Guest.Machine); m != "" {
		next.Machine = &v1.Machine{Type: m}
	}
	if boot := in.Guest.MemoryAtBoot; boot > 0 {
		current := in.Guest.MemoryCurrent
		if current <= 0 {
			current = boot
		}
		if next.Memory == nil {
			next.Memory = &v1.MemoryStatus{}
		}
		setQuantity(&next.Memory.GuestAtBoot, boot)
		setQuantity(&next.Memory.GuestCurrent, current)
		setQuantity(&next.Memory.GuestRequested, boot+max(in.Guest.MemoryRequested, 0))
	}
	next.VolumeStatus = plugged(in.Volumes, volumes(in, next.VolumeStatus))
	sizes(in.Growth, next.VolumeStatus)
	checksums(in.Guest.GetImageChecksums(), in.VMI, next.VolumeStatus)
	kernelChecksums(in.Guest.GetImageChecksums(), next)
	next.Interfaces = interfaces(in)
	next.GuestOSInfo = v1.VirtualMachineInstanceGuestOSInfo{}
	if in.Guest.AgentConnected {
		next.GuestOSInfo = guestOS(in.Guest.GuestOsJson)
	}
	next.FSFreezeStatus = ""
	if in.Guest.FsfreezeStatus == "frozen" {
		next.FSFreezeStatus = "frozen"
	}
	next.MigrationMethod = migrationMethod(in.VMI)
	next.MigrationTransport = v1.MigrationTransportUnix
}

// setQuantity keeps a quantity that has the value already, so that its spelling stays.
func setQuantity(q **resource.Quantity, bytes int64) {
	if *q == nil || (*q).Value() != bytes {
		*q = resource.NewQuantity(bytes, resource.BinarySI)
	}
}

// topology returns the topology of the vCPUs that are online; before the launcher has reported their number, the one
// known before.
func topology(cpu *v1.CPU, online uint32, known *v1.CPUTopology) *v1.CPUTopology {
	t := &v1.CPUTopology{Cores: 1, Sockets: 1, Threads: 1}
	if cpu != nil {
		t.Cores, t.Sockets, t.Threads = max(1, cpu.Cores), max(1, cpu.Sockets), max(1, cpu.Threads)
	}
	switch {
	case online > 0:
		t.Sockets = max(1, online/max(1, t.Cores*t.Threads))
	case known != nil:
		return known
	}
	return t
}

// volumes adds the targets that the guest has to what the controller knows of each volume.
func volumes(in Input, old []v1.VolumeStatus) []v1.VolumeStatus {
	byName := map[string]v1.VolumeStatus{}
	for _, s := range old {
		byName[s.Name] = s
	}
	var out []v1.VolumeStatus
	for _, v := range in.VMI.Spec.Volumes {
		s, known := byName[v.Name]
		delete(byName, v.Name)
		if target := clean(in.Guest.VolumeTargets[v.Name]); target != "" {
			s.Target = target
		} else if !known {
			continue
		}
		s.Name = v.Name
		out = append(out, s)
	}
	for _, s := range old {
		if _, left := byName[s.Name]; left {
			out = append(out, s)
		}
	}
	slices.SortStableFunc(out, func(a, b v1.VolumeStatus) int { return strings.Compare(a.Name, b.Name) })
	return out
}
