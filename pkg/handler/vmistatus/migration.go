package vmistatus

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// Outgoing describes a migration from this node.
type Outgoing struct {
	UID types.UID
	// Begun is when the guest began to move; zero if it did not.
	Begun time.Time
	// Mode is the mode of the migration; "" means PreCopy.
	Mode v1.MigrationMode
	// Failed: it stays, for the reason given. Cancelled: because it was asked to.
	Failed, Cancelled bool
	Reason            string
}

// Target describes this node as the target of a migration.
type Target struct {
	Node string
	// Address and Port are the address at which its virt-handler receives the guest.
	Address string
	Port    int
	// Prepared: the launcher waits for the guest.
	Prepared bool
}

// Moved reports whether a launcher's termination message says that it has let its guest go to another one.
func Moved(pod *corev1.Pod) bool {
	return lastWord(pod).Lifecycle == launcherpb.Lifecycle_LIFECYCLE_MIGRATED
}

// NeverRan reports whether a launcher's termination message says that no guest has run in it, not even one that it
// had received.
func NeverRan(pod *corev1.Pod) bool { return lastWord(pod).Reason == names.ReasonNeverRan }

// Paused reports whether a VMI's guest was paused by its user when it was last looked at.
func Paused(vmi *v1.VirtualMachineInstance) bool {
	c := conditions.Find(vmi.Status.Conditions, v1.VirtualMachineInstancePaused)
	return c != nil && c.Status == corev1.ConditionTrue && c.Reason != names.ReasonPausedToMove
}

// atSource notes how the migration from this node goes.
func atSource(in Input, next *v1.VirtualMachineInstanceStatus) {
	ms, d := next.MigrationState, in.Outgoing
	if ms == nil || d == nil || d.UID != ms.MigrationUID || migrations.Over(ms) {
		return
	}
	if ms.StartTimestamp == nil && !d.Begun.IsZero() {
		begun := metav1.NewTime(d.Begun).Rfc3339Copy()
		ms.StartTimestamp, ms.Mode = &begun, v1.MigrationPreCopy
	}
	if ms.StartTimestamp != nil && d.Mode != "" {
		ms.Mode = d.Mode
	}
	if d.Failed {
		migrations.Fail(ms, clean(d.Reason), d.Cancelled, in.Now)
	}
}

// AtTarget returns the next status of a VMI that is to move to this node: that the node waits for the guest, and then,
// in one step, that the guest is here.
func AtTarget(in Input, target Target) v1.VirtualMachineInstanceStatus {
	next := *in.VMI.Status.DeepCopy()
	ms := next.MigrationState
	if in.VMI.IsFinal() || ms == nil || migrations.Over(ms) {
		return next
	}
	switch in.Guest.GetLifecycle() {
	case launcherpb.Lifecycle_LIFECYCLE_RUNNING, launcherpb.Lifecycle_LIFECYCLE_PAUSED,
		launcherpb.Lifecycle_LIFECYCLE_SHUTTING_DOWN:
		return handedOver(in, next, target)
	}
	switch {
	case ms.TargetNodeAddress != "":
	case target.Prepared && target.Address != "":
		ms.TargetNodeAddress = target.Address
		ms.TargetDirectMigrationNodePorts = map[string]int{strconv.Itoa(target.Port): 0}
	case target.Prepared:
		migrations.Fail(ms, "virt-handler on node "+target.Node+" does not know its own address: set POD_IP",
			false, in.Now)
	case in.Failure != nil && in.Failure.Final:
		// The guest cannot have begun to move, since nobody knows where to.
		migrations.Fail(ms, "target node "+target.Node+": "+clean(in.Failure.Message), false, in.Now)
	}
	return next
}

// handedOver returns the first status that the target node writes: the VMI is its own.
func handedOver(in Input, next v1.VirtualMachineInstanceStatus, target Target) v1.VirtualMachineInstanceStatus {
	ms := next.MigrationState
	now := metav1.NewTime(in.Now).Rfc3339Copy()
	if ms.StartTimestamp == nil {
		ms.StartTimestamp, ms.Mode = &now, v1.MigrationPreCopy
	}
	ms.EndTimestamp, ms.TargetNodeDomainReadyTimestamp = &now, &now
	ms.Completed, ms.TargetNodeDomainDetected = true, true
	next.NodeName = target.Node
	if next.EvacuationNodeName != target.Node {
		next.EvacuationNodeName = "" // it has left
	}
	next.ActivePods = maps.Clone(next.ActivePods)
	for uid := range next.ActivePods {
		if uid != in.Pod.UID {
			next.ActivePods[uid] = "" // The guest has left it; virt-controller takes it out when it has ended.
		}
	}
	hotplug.UseTargetPod(in.VMI, next.VolumeStatus)
	volumemigration.Land(&next)
	in.VMI = in.VMI.DeepCopy()
	in.VMI.Status = next
	return Next(in)
}

// migrationEvents returns the events for what happened to a migration between two statuses.
func migrationEvents(old, next *v1.VirtualMachineInstanceMigrationState) []Event {
	if next == nil {
		return nil
	}
	if old == nil || old.MigrationUID != next.MigrationUID {
		old = &v1.VirtualMachineInstanceMigrationState{}
	}
	var out []Event
	if old.TargetNodeAddress == "" && next.TargetNodeAddress != "" {
		out = append(out,
			Event{
				corev1.EventTypeNormal, string(v1.PreparingTarget),
				fmt.Sprintf("Migration target on node %s waits for the guest at %s.", next.TargetNode,
					next.TargetNodeAddress),
			})
	}
	if old.StartTimestamp == nil && next.StartTimestamp != nil {
		out = append(out, Event{
			corev1.EventTypeNormal, string(v1.Migrating),
			fmt.Sprintf("VirtualMachineInstance is migrating from node %s to %s.", next.SourceNode, next.TargetNode),
		})
	}
	if old.Mode == v1.MigrationPreCopy {
		switch next.Mode {
		case v1.MigrationPostCopy:
			out = append(out,
				Event{
					corev1.EventTypeNormal, string(v1.Migrating),
					"The migration takes too long: the guest runs on at node " + next.TargetNode +
						" before all of its memory is there (post-copy).",
				})
		case v1.MigrationPaused:
			out = append(out, Event{
				corev1.EventTypeWarning, string(v1.Migrating),
				"The migration takes too long: the guest stands still until it is there.",
			})
		}
	}
	switch {
	case migrations.Failed(old) || migrations.Succeeded(old):
	case migrations.Failed(next):
		out = append(out,
			Event{
				corev1.EventTypeWarning, string(v1.Migrated),
				fmt.Sprintf("VirtualMachineInstance migration uid %s failed. reason: %s", next.MigrationUID,
					next.FailureReason),
			})
	case migrations.Succeeded(next):
		out = append(out, Event{
			corev1.EventTypeNormal, string(v1.Migrated),
			fmt.Sprintf("The VirtualMachineInstance migrated to node %s.", next.TargetNode),
		})
	}
	return out
}
