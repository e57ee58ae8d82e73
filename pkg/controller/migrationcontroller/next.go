package migrationcontroller

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/migrations/v1alpha1"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/frame"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/surface"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// Reasons of events on a migration; KubeVirt's words.
const (
	ReasonSuccessfulCreate    = "SuccessfulCreate"
	ReasonFailedCreate        = "FailedCreate"
	ReasonSuccessfulDelete    = "SuccessfulDelete"
	ReasonSuccessfulHandOver  = "SuccessfulHandOver"
	ReasonSuccessfulMigration = "SuccessfulMigration"
	ReasonFailedMigration     = "FailedMigration"
)

const (
	// scheduleTimeout is how long the target pod may wait for a node, and prepareTimeout how long it and its
	// virt-handler may take from then on until the guest can come; KubeVirt's.
	scheduleTimeout = 5 * time.Minute
	prepareTimeout  = 5 * time.Minute
	// waitAgain is when a migration that has to wait for others looks again, at the latest.
	waitAgain = 5 * time.Second
)

// View is all that Next looks at.
type View struct {
	Migration *v1.VirtualMachineInstanceMigration
	// VMI is nil when there is none.
	VMI *v1.VirtualMachineInstance
	// Pod is the migration's pod, SourcePod the name of the one that the guest is in; nil and empty when there
	// is none.
	Pod       *corev1.Pod
	SourcePod string
	// Uncreated says that nobody remembers to have created a pod for the migration: there was none yet, or
	// virt-controller was killed before it could record it.
	Uncreated bool
	// Created are the purposes of the pods that were created for the VMI, by UID.
	Created map[types.UID]string
	// Siblings are the VMI's migrations, this one among them, and Ended its pods that are over; they are known when the
	// migration is over.
	Siblings []*v1.VirtualMachineInstanceMigration
	Ended    []*corev1.Pod
	// TargetLost says why the node to which the guest is to move counts as lost; empty is not.
	TargetLost string
	// Attachments are the pods that hold hotplugged claims for Pod.
	Attachments []*corev1.Pod
	// StateClaim is the claim that was made for the guest's persistent state where it goes, as long as it is nothing
	// else.
	StateClaim *corev1.PersistentVolumeClaim
	// Policy is the one that holds for the migration, nil for none, and Cluster the configuration without it. They
	// are known when the migration is about to be scheduled.
	Policy  *v1alpha1.MigrationPolicy
	Cluster v1.MigrationConfiguration
	// Wait says what this migration must wait for; empty is nothing.
	Wait string
	Now  time.Time
}

// Step is what is to be done; the zero Step but for Status is nothing.
type Step struct {
	// AddFinalizer also labels the migration with its VMI.
	AddFinalizer, RemoveFinalizer bool
	CreatePod, DeletePod          bool
	// Attach are the hotplugged volumes whose claims a pod is to hold beside the migration's; DeleteAttachments are
	// such pods that nobody needs.
	Attach            []string
	DeleteAttachments []*corev1.Pod
	// DeleteState is the claim of StateClaim that nobody needs.
	DeleteState *corev1.PersistentVolumeClaim
	// Prune are ended migrations that newer ones displace, and PrunePods what they left behind.
	Prune     []*v1.VirtualMachineInstanceMigration
	PrunePods []*corev1.Pod
	// Status is what the migration's status should be.
	Status v1.VirtualMachineInstanceMigrationStatus
	// VMIStatus is what the VMI's status should be; nil leaves it.
	VMIStatus *v1.VirtualMachineInstanceStatus
	// ShowTo is the node whose virt-handler is to see the VMI as one that comes; empty leaves it, and Hide
	// takes the VMI out of its sight.
	ShowTo string
	Hide   bool
	Events []vmicontroller.Event
	frame.Requeue
}

// Final reports whether a migration is over.
func Final(migration *v1.VirtualMachineInstanceMigration) bool {
	return migration.Status.Phase == v1.MigrationSucceeded || migration.Status.Phase == v1.MigrationFailed
}

// Active reports whether a migration has a pod, or is about to: it counts for the limits.
func Active(migration *v1.VirtualMachineInstanceMigration) bool {
	switch migration.Status.Phase {
	case v1.MigrationPhaseUnset, v1.MigrationPending, v1.MigrationSucceeded, v1.MigrationFailed:
		return false
	}
	return true
}

// Next decides.
func Next(view View) Step {
	step := Step{Status: *view.Migration.Status.DeepCopy()}
	switch {
	case Final(view.Migration):
		step.tidy(view)
	case view.VMI == nil:
		step.fail(view, "the VirtualMachineInstance "+view.Migration.Spec.VMIName+" does not exist")
	case view.VMI.IsFinal():
		step.fail(view, guestEnded(view))
	case !slices.Contains(view.Migration.Finalizers, v1.VirtualMachineInstanceMigrationFinalizer) &&
		view.Migration.DeletionTimestamp == nil:
		step.AddFinalizer = true
	case state(view) == nil:
		step.findPlace(view)
	default:
		step.follow(view)
	}
	return step
}

// state is the VMI's migrationState when it is this migration's, else nil.
func state(view View) *v1.VirtualMachineInstanceMigrationState {
	if view.VMI == nil {
		return nil
	}
	ms := view.VMI.Status.MigrationState
	if ms == nil || ms.MigrationUID != view.Migration.UID {
		return nil
	}
	return ms
}

// guestEnded is why a migration failed whose guest has ended: what the guest's node says of the migration, or just
// that.
func guestEnded(view View) string {
	if ms := state(view); ms != nil && ms.Failed && ms.FailureReason != "" {
		return "the guest has ended: " + strings.TrimPrefix(ms.FailureReason, "the guest has ended: ")
	}
	return "the guest has ended"
}

// findPlace takes the migration to the point where the VMI's nodes take over.
func (s *Step) findPlace(view View) {
	migration, pod := view.Migration, view.Pod
	switch {
	case migration.DeletionTimestamp != nil:
		s.abortRequested(view)
		s.fail(view, "cancelled before it began")
	case !Active(migration) && pod == nil:
		s.begin(view)
	case pod == nil && view.Uncreated && view.VMI.DeletionTimestamp == nil && view.VMI.Status.Phase == v1.Running &&
		view.Now.Sub(since(&s.Status, v1.MigrationScheduling)) < scheduleTimeout:
		s.CreatePod = true
	case pod == nil && view.Uncreated:
		s.fail(view, "its pod could not be created: the events of the migration say why")
	case pod == nil:
		s.fail(view, "its pod was deleted")
	case over(pod):
		s.fail(view, "its pod "+pod.Name+" has ended: "+ended(pod))
	case view.VMI.DeletionTimestamp != nil:
		s.fail(view, "the VirtualMachineInstance was deleted")
	case pod.Spec.NodeName == "":
		s.phase(v1.MigrationScheduling, view.Now)
		left := scheduleTimeout - view.Now.Sub(pod.CreationTimestamp.Time)
		if left <= 0 {
			s.fail(view, "no node takes its pod "+pod.Name+": "+unschedulable(pod))
			return
		}
		s.RequeueAfter = left
	default:
		s.attach(view)
	}
}

// begin lets a migration make its pod, when nothing speaks against it.
func (s *Step) begin(view View) {
	switch {
	case view.VMI.DeletionTimestamp != nil:
		s.fail(view, "the VirtualMachineInstance was deleted")
		return
	case view.VMI.Status.Phase == v1.Running:
		if message := migrations.Refusal(view.VMI); message != "" {
			s.fail(view, message)
			return
		}
		if view.Wait == "" && !vmstate.Unsettled(&view.VMI.Status) {
			s.phase(v1.MigrationScheduling, view.Now)
			s.CreatePod = true
			return
		}
	}
	s.phase(v1.MigrationPending, view.Now)
	s.RequeueAfter = waitAgain
}

// schedule tells the VMI's nodes of the migration, whose pod has a node. attachment holds the hotplugged claims there;
// nil when there are none.
func (s *Step) schedule(view View, attachment *corev1.Pod) {
	status := view.VMI.Status.DeepCopy()
	status.MigrationState = &v1.VirtualMachineInstanceMigrationState{
		MigrationUID: view.Migration.UID,
		SourceNode:   status.NodeName,
		SourcePod:    view.SourcePod,
		TargetNode:   view.Pod.Spec.NodeName,
		TargetPod:    view.Pod.Name,

		MigrationNetworkType:   v1.Pod,
		MigrationConfiguration: surface.Configured(view.Cluster, view.Policy),
	}
	source, target := stateClaims(view.Migration, view.VMI)
	status.MigrationState.SourcePersistentStatePVCName = source
	status.MigrationState.TargetPersistentStatePVCName = target
	if view.Policy != nil {
		status.MigrationState.MigrationPolicyName = new(view.Policy.Name)
	}
	if attachment != nil {
		status.MigrationState.TargetAttachmentPodUID = attachment.UID
	}
	status.ActivePods = maps.Clone(status.ActivePods)
	if status.ActivePods == nil {
		status.ActivePods = map[types.UID]string{}
	}
	status.ActivePods[view.Pod.UID] = view.Pod.Spec.NodeName
	s.VMIStatus = status
	s.ShowTo = view.Pod.Spec.NodeName
	s.phase(v1.MigrationScheduled, view.Now)
	s.event(corev1.EventTypeNormal, ReasonSuccessfulHandOver,
		"Migration target pod is ready for preparation by virt-handler.")
}

// follow reads from the VMI how the migration goes on, and ends it where no node can.
func (s *Step) follow(view View) {
	ms := state(view)
	s.Status.MigrationState = ms.DeepCopy()
	s.ShowTo = ms.TargetNode
	switch {
	case ms.Failed:
		reason := ms.FailureReason
		if view.TargetLost != "" {
			// What the source saw of it is a connection that ended.
			reason = view.TargetLost + ": " + reason
			s.Status.MigrationState.FailureReason = reason
		}
		s.fail(view, reason)
		return
	case ms.Completed:
		s.succeed(view)
		return
	case ms.StartTimestamp != nil:
		s.phase(v1.MigrationRunning, view.Now)
	case ms.TargetNodeAddress != "":
		s.phase(v1.MigrationTargetReady, view.Now)
	default:
		s.phase(v1.MigrationPreparingTarget, view.Now)
		if reason := s.hopeless(view); reason != "" {
			s.giveUp(view, reason, false)
			return
		}
	}
	if view.Migration.DeletionTimestamp == nil {
		switch {
		case view.TargetLost == "":
		case ms.TargetNodeAddress == "":
			s.giveUp(view, view.TargetLost, false)
		default:
			s.abort(view)
		}
		return
	}
	s.abortRequested(view)
	if ms.TargetNodeAddress == "" {
		// The source does not know yet where the guest should go, so nothing has begun.
		s.giveUp(view, "cancelled before it began", true)
		return
	}
	s.abort(view)
}

// hopeless says why a target that is being prepared will not be ready.
func (s *Step) hopeless(view View) string {
	switch {
	case view.Pod == nil:
		return "its pod was deleted"
	case over(view.Pod):
		return "its pod " + view.Pod.Name + " has ended: " + ended(view.Pod)
	}
	left := prepareTimeout - view.Now.Sub(since(&s.Status, v1.MigrationPreparingTarget))
	if left <= 0 {
		return fmt.Sprintf("node %s was not ready for the guest within %s", view.Pod.Spec.NodeName, prepareTimeout)
	}
	s.RequeueAfter = left
	return ""
}

// giveUp ends a migration of which the source has not been told where to go. Should the target have said so
// meanwhile, the write fails, and the next pass sees it.
func (s *Step) giveUp(view View, reason string, cancelled bool) {
	status := view.VMI.Status.DeepCopy()
	ms := status.MigrationState
	end := metav1.NewTime(view.Now).Rfc3339Copy()
	ms.EndTimestamp, ms.Completed, ms.Failed, ms.FailureReason = &end, true, true, reason
	if cancelled {
		ms.AbortRequested, ms.AbortStatus = true, v1.MigrationAbortSucceeded
	}
	s.VMIStatus = status
	s.Status.MigrationState = ms.DeepCopy()
	s.fail(view, reason)
}

func (s *Step) succeed(view View) {
	s.phase(v1.MigrationSucceeded, view.Now)
	s.event(corev1.EventTypeNormal, ReasonSuccessfulMigration, "Source node reported migration succeeded")
	s.RemoveFinalizer = true
}

// fail ends the migration; what is left of it is tidied up in the next pass.
func (s *Step) fail(view View, reason string) {
	if s.Status.MigrationState == nil {
		s.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{
			MigrationUID: view.Migration.UID,
			Failed:       true, FailureReason: reason,
		}
	}
	s.phase(v1.MigrationFailed, view.Now)
	s.event(corev1.EventTypeWarning, ReasonFailedMigration, strings.TrimSuffix("Migration failed: "+reason, ": "))
}

// tidy removes what a failed migration leaves, and lets a migration go that is over.
func (s *Step) tidy(view View) {
	if view.Migration.Status.Phase == v1.MigrationFailed {
		if view.Pod != nil && !arrived(view) {
			s.DeletePod = view.Pod.DeletionTimestamp == nil
			s.DeleteAttachments = view.Attachments
			s.forget(view)
		}
		s.dropState(view)
		ms := state(view)
		s.Hide = ms != nil && view.VMI.Labels[v1.MigrationTargetNodeNameLabel] == ms.TargetNode &&
			view.VMI.Status.NodeName != ms.TargetNode
	}
	s.RemoveFinalizer = slices.Contains(view.Migration.Finalizers, v1.VirtualMachineInstanceMigrationFinalizer)
	s.Prune = surplus(view.Siblings)
	s.PrunePods = leftBy(s.Prune, view.Ended)
}

// forget takes the pod out of the VMI's active ones.
func (s *Step) forget(view View) {
	if view.VMI == nil {
		return
	}
	if _, named := view.VMI.Status.ActivePods[view.Pod.UID]; named {
		s.VMIStatus = view.VMI.Status.DeepCopy()
		delete(s.VMIStatus.ActivePods, view.Pod.UID)
	}
}

// arrived reports whether the guest is in the migration's pod, whatever the migration thinks.
func arrived(view View) bool {
	return view.VMI != nil && !view.VMI.IsFinal() && view.VMI.Status.NodeName == view.Pod.Spec.NodeName &&
		view.Pod.Spec.NodeName != ""
}

func (s *Step) abortRequested(view View) {
	conditions.Set(&s.Status.Conditions, v1.VirtualMachineInstanceMigrationCondition{
		Type: v1.VirtualMachineInstanceMigrationAbortRequested, Status: corev1.ConditionTrue,
	}, view.Now)
}

func (s *Step) phase(phase v1.VirtualMachineInstanceMigrationPhase, now time.Time) {
	if s.Status.Phase == phase {
		return
	}
	s.Status.Phase = phase
	s.Status.PhaseTransitionTimestamps = append(s.Status.PhaseTransitionTimestamps,
		v1.VirtualMachineInstanceMigrationPhaseTransitionTimestamp{
			Phase: phase, PhaseTransitionTimestamp: metav1.NewTime(now),
		})
}

// since is when the migration entered a phase; now-like zero is never returned, since phase noted it.
func since(status *v1.VirtualMachineInstanceMigrationStatus, phase v1.VirtualMachineInstanceMigrationPhase) time.Time {
	for _, transition := range slices.Backward(status.PhaseTransitionTimestamps) {
		if transition.Phase == phase {
			return transition.PhaseTransitionTimestamp.Time
		}
	}
	return time.Time{}
}

func (s *Step) event(kind, reason, message string) {
	s.Events = append(s.Events, vmicontroller.Event{Type: kind, Reason: reason, Message: message})
}
