package migrationcontroller

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/migrations/v1alpha1"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
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
	// scheduleTimeout bounds the time that the target pod may wait for a node, prepareTimeout the time that the pod and
	// its virt-handler may take from then on until they can receive the guest; KubeVirt's.
	scheduleTimeout = 5 * time.Minute
	prepareTimeout  = 5 * time.Minute
	// waitAgain is the longest delay before a migration that waits for others is looked at again.
	waitAgain = 5 * time.Second
	// waitShortly is the delay before a write of this reconciler to another object is looked at.
	waitShortly = time.Second
)

// View is the input of Next.
type View struct {
	Migration *v1.VirtualMachineInstanceMigration
	// VMI is nil when there is none.
	VMI *v1.VirtualMachineInstance
	// Pod is the migration's pod, SourcePod the name of the pod that the guest is in; nil and empty when there is none.
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
	// StateTaken says that a claim of that name exists which was not made for this.
	StateTaken bool
	// Disks is for a migration that brings disks and is not under way; nil for others.
	Disks *Disks
	// Facts hold what pods that are to be created depend on. The CPU of the target pod depends on Source and
	// SourceNode, which are empty when they are gone; nil means nothing.
	Facts      vmicontroller.Facts
	Source     *corev1.Pod
	SourceNode *corev1.Node
	// Policy is the migration policy that applies to the migration, nil for none, and Cluster the configuration without
	// it. They are known when the migration is about to be scheduled.
	Policy  *v1alpha1.MigrationPolicy
	Cluster v1.MigrationConfiguration
	// Wait says what this migration must wait for; "" means nothing.
	Wait string
	Now  time.Time
}

// Step holds what to write; a Step that is zero but for Status writes nothing else.
type Step struct {
	// AddFinalizer also labels the migration with its VMI.
	AddFinalizer, RemoveFinalizer bool
	// CreatePod asks for the migration's pod: Pod, and CreateState before it if that is not nil.
	CreatePod, DeletePod bool
	Pod                  *corev1.Pod
	CreateState          *corev1.PersistentVolumeClaim
	// Used are claims of Pod, or of Attachment, that only waited for an upload until now: the guest's disks are copied
	// to them.
	Used []*corev1.PersistentVolumeClaim
	// Failed is what could not be planned; it is tried again.
	Failed error
	// Attach are the hotplugged volumes whose claims a pod is to hold beside the migration's: Attachment.
	// DeleteAttachments are such pods that nobody needs.
	Attach            []string
	Attachment        *corev1.Pod
	DeleteAttachments []*corev1.Pod
	// DeleteState is the claim of StateClaim that nobody needs.
	DeleteState *corev1.PersistentVolumeClaim
	// Prune are ended migrations that newer ones displace, and PrunePods what they left behind.
	Prune     []*v1.VirtualMachineInstanceMigration
	PrunePods []*corev1.Pod
	// Status is the migration's status as it should be.
	Status v1.VirtualMachineInstanceMigrationStatus
	// VMIStatus is the VMI's status as it should be; nil leaves it.
	VMIStatus *v1.VirtualMachineInstanceStatus
	// TargetLabel is the value of the VMI's label by which the target node's virt-handler finds it, "" for none; nil
	// leaves it.
	TargetLabel *string
	// showTo is the node whose virt-handler is to see the VMI as one that comes; empty leaves it, and hide takes the
	// VMI out of its sight.
	showTo string
	hide   bool
	Events []vmicontroller.Event
	brought
	frame.Requeue
}

// Next decides.
func Next(view View) Step {
	step := decide(view)
	step.plan(view)
	step.label(view)
	return step
}

// label sets TargetLabel where it is another than there is.
func (s *Step) label(view View) {
	if view.VMI == nil || s.showTo == "" && !s.hide {
		return
	}
	want := s.showTo
	if s.hide {
		want = ""
	}
	if view.VMI.Labels[v1.MigrationTargetNodeNameLabel] != want {
		s.TargetLabel = &want
	}
}

// decide does what Next does, without the plans of pods and claims.
func decide(view View) Step {
	step := Step{Status: *view.Migration.Status.DeepCopy()}
	switch {
	case view.Migration.IsFinal():
		step.tidy(view)
	case view.VMI == nil:
		step.fail(view, "the VirtualMachineInstance "+view.Migration.Spec.VMIName+" does not exist")
	case view.VMI.IsFinal():
		if ms := state(view); ms != nil {
			step.Status.MigrationState = ms.DeepCopy()
		}
		step.fail(view, guestEnded(view))
	case !slices.Contains(view.Migration.Finalizers, v1.VirtualMachineInstanceMigrationFinalizer) &&
		view.Migration.DeletionTimestamp == nil:
		step.AddFinalizer = true
	case state(view) == nil:
		step.findTarget(view)
	default:
		step.follow(view)
	}
	return step
}

// state returns the VMI's migrationState when it is this migration's, else nil.
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

// since returns when the migration entered a phase, the zero time if it has not been in it.
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
