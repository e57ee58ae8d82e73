package vmicontroller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// Reasons of events and conditions; KubeVirt's words, which people and programs look for.
const (
	ReasonSuccessfulCreate  = "SuccessfulCreate"
	ReasonFailedCreate      = names.ReasonFailedCreate
	ReasonSuccessfulDelete  = "SuccessfulDelete"
	ReasonFailedDelete      = "FailedDelete"
	ReasonFailedPvcNotFound = "FailedPvcNotFound"
	ReasonNodeUnresponsive  = "NodeUnresponsive"
)

const (
	// scheduleGrace is the time that a fresh pod may wait for its node before phase Scheduling is written: the
	// scheduler mostly needs less, and the write is saved.
	scheduleGrace = time.Second
	// handlerGrace is the time that virt-handler has to report the end of a guest whose pod is over before
	// virt-controller does, in case it is down or its node is gone.
	handlerGrace = 15 * time.Second
	// finalGrace is the time in which the launcher of a finished guest ends by itself.
	finalGrace = 10 * time.Second
)

// View is the input of Next.
type View struct {
	VMI *v1.VirtualMachineInstance
	// Pods are the pods that exist and say that they are the VMI's; see own.
	Pods []*corev1.Pod
	// Created are the UIDs of the pods that this virt-controller created for the VMI, with their purpose; Creating says
	// that one is being created just now.
	Created  map[types.UID]string
	Creating bool
	// Recorded is status.activePods as the API server has it; known when a pod is stray as far as VMI says.
	Recorded map[types.UID]string
	// Claims are the VMI's PersistentVolumeClaims that exist, by name.
	Claims map[string]*corev1.PersistentVolumeClaim
	// DataVolumes are the existing ones with the claims' names; CDI says whether the cluster has any.
	DataVolumes map[string]*cdiv1.DataVolume
	CDI         bool
	// Attachments are the VMI's attachment pods that exist.
	Attachments []*corev1.Pod
	// Unnamed are pods that were made for volumes, by name, and that the status does not name because it could not be
	// written.
	Unnamed map[string]*corev1.Pod
	// CID is the vsock CID that a VMI which has none yet is to have; 0 for none.
	CID uint32
	// Node is the node of a VMI that is in phase Unknown, or was when it ended. It is nil otherwise, and when the node
	// does not exist any more.
	Node *corev1.Node
	// Silence is for how long at least the cluster has not heard of Node's virt-handler while nobody vouched for it, by
	// the --fence-after of launchers there.
	Silence map[time.Duration]time.Duration
	// TSC is the frequency for a VMI that needs one and has none yet, 0 where none is available.
	TSC int64
	// Holders are the nodes, by pod, on which the guest may still run although its pod was removed.
	Holders map[types.UID]string
	// Leased is the reason why a claim of a VMI that has no pod yet must not be used yet, or "" when all may be.
	Leased string
	// Unnoted says that the VMI's guest leaves disks uncopied to the claims that its VM names, and that the VM's status
	// does not say so yet (volumemigration.Unnoted); known of a VMI that may go.
	Unnoted bool
	// DeadSince is when the VMI, scheduled before, was first seen without a pod that is alive; zero means now or
	// never.
	DeadSince time.Time
	// Facts hold what pods depend on; for guests' pods, in full only when one is to be created.
	Facts Facts
	Now   time.Time
}

// Event is one to record on the VMI.
type Event struct {
	Type, Reason, Message string
}

// Step holds what to write; a Step that is zero but for Status writes nothing else.
type Step struct {
	// AddFinalizer and RemoveFinalizer are about the VMI's own finalizer.
	AddFinalizer, RemoveFinalizer bool
	// CreateState asks for the claim of StateClaim(); State is this claim.
	CreateState bool
	State       *corev1.PersistentVolumeClaim
	// AdoptState is the claim to which the persistent state has moved, to be labelled as the state's claim. RetireState
	// is the claim from which it came, to be removed; or that is ReleaseState, which a user gave: it keeps its data and
	// only loses its label.
	AdoptState, RetireState, ReleaseState *corev1.PersistentVolumeClaim
	// CreatePod asks for the pod of Pod(), CreateProvisioning for that of Provisioning(); Pods are these.
	CreatePod, CreateProvisioning bool
	Pods                          []Planned
	// Used are claims that only waited for an upload until now: pods that are to be created write to them.
	Used []*corev1.PersistentVolumeClaim
	// Failed is what could not be planned; it is tried again.
	Failed error
	// DeletePods are to be deleted gracefully.
	DeletePods []*corev1.Pod
	// Strays are to be deleted; see stray.
	Strays []*corev1.Pod
	// RemovePods are on their way out on a node that cannot confirm it and is known not to run them: they are to be
	// removed now.
	RemovePods []*corev1.Pod
	// CreateAttachments are the names of hotplugged volumes that want an attachment pod; Attachments are these pods.
	CreateAttachments []string
	Attachments       []Planned
	// DeleteAttachments are attachment pods to be deleted.
	DeleteAttachments []*corev1.Pod
	// Gates are readiness gates to be written.
	Gates []GateChange
	// Expansions are pods whose kubelets are asked to make file systems larger.
	Expansions []PodExpansion
	// Status is the VMI's status as it should be.
	Status v1.VirtualMachineInstanceStatus
	// NodeLabel is the value of the label kubevirt.io/nodeName as it should be; "" leaves it.
	NodeLabel string
	// Dead says that the VMI was scheduled and has no pod alive.
	Dead   bool
	Events []Event
	frame.Requeue
}

// Next decides. It writes the status only up to phase Scheduled; from then on virt-handler does, unless the pod is over
// and virt-handler did not report that in time.
func Next(view View) Step {
	step := decide(view)
	step.plan(view)
	step.use(view)
	return step
}

// decide does what Next does, without the plans of pods.
func decide(view View) Step {
	step := Step{Status: *view.VMI.Status.DeepCopy(), Strays: stray(view)}
	switch {
	case view.VMI.DeletionTimestamp != nil:
		step.end(view)
	case view.VMI.IsFinal():
		step.tidy(view)
	case Scheduled(view.VMI):
		step.watchOver(view)
	default:
		step.bringUp(view)
	}
	return step
}

// Scheduled reports whether the VMI has reached phase Scheduled: virt-handler is in charge of its status then.
func Scheduled(vmi *v1.VirtualMachineInstance) bool {
	switch vmi.Status.Phase {
	case v1.VmPhaseUnset, v1.Pending, v1.Scheduling:
		return false
	}
	return true
}

// end lets a deleted VMI go: first its pods, then its finalizer.
func (s *Step) end(view View) {
	pods := own(view)
	if len(pods) == 0 {
		if s.keepLease(view) {
			return
		}
		if s.settleState(view) {
			s.RequeueAfter = frame.CatchUp // the next instance must find the right claim
			return
		}
		if view.Unnoted {
			s.RequeueAfter = frame.CatchUp // the VM would start with the other claims
			return
		}
		s.DeleteAttachments = notDeleted(view.Attachments)
		s.RemoveFinalizer = slices.Contains(view.VMI.Finalizers, v1.VirtualMachineInstanceFinalizer)
		return
	}
	s.DeletePods = notDeleted(pods)
	s.removeFenced(view)
}

// tidy ends launchers that outlive their finished guest; a completed pod stays for its log.
func (s *Step) tidy(view View) {
	alive := notDeleted(slices.DeleteFunc(own(view), life.PodEnded))
	if len(alive) == 0 {
		s.DeleteAttachments = notDeleted(view.Attachments)
		return
	}
	if left := finalGrace - view.Now.Sub(conditions.PhaseSince(&view.VMI.Status, view.VMI.Status.Phase)); left > 0 {
		s.RequeueAfter = left
		return
	}
	s.DeletePods = alive
}

// bringUp takes the VMI from its creation to phase Scheduled.
func (s *Step) bringUp(view View) {
	if !slices.Contains(view.VMI.Finalizers, v1.VirtualMachineInstanceFinalizer) {
		s.AddFinalizer = true
	}
	pods := own(view)
	if len(pods) == 0 {
		s.withoutPod(view)
		return
	}
	pod := pods[0]
	switch {
	case life.PodEnded(pod):
		reason, message := podOver(pod)
		s.finish(view, v1.Failed, reason, message)
	case pod.DeletionTimestamp != nil:
		s.finish(view, v1.Failed, v1.PodTerminatingReason,
			fmt.Sprintf("pod %s was deleted before the guest ran", pod.Name))
	case pod.Spec.NodeName != "":
		s.schedule(view, pod)
	default:
		s.waitForNode(view, pod)
	}
}

func (s *Step) withoutPod(view View) {
	if view.VMI.Status.Phase == v1.Scheduling && len(view.VMI.Status.ActivePods) > 0 {
		s.finish(view, v1.Failed, v1.PodNotExistsReason, "the launcher pod was deleted before the guest ran")
		return
	}
	for _, name := range bootClaimNames(view.VMI) {
		if message := missingClaim(view, name); message != "" {
			s.wait(view, ReasonFailedPvcNotFound, message)
			return
		}
	}
	for _, name := range bootClaimNames(view.VMI) {
		if claim := view.Claims[name]; claim != nil {
			if message := uploads.Unusable(name, claim.Annotations); message != "" {
				s.wait(view, names.ReasonUploadIncomplete, message)
				return
			}
		}
	}
	if view.Leased != "" {
		s.wait(view, names.ReasonClaimHeld, view.Leased)
		s.RequeueAfter = holdersAgain
		return
	}
	if message := deviceShared(view); message != "" {
		s.wait(view, ReasonFailedCreate, message)
		return
	}
	if vmstate.Needed(&view.VMI.Spec) && stateClaimIn(view.VMI, view.Claims) == nil {
		s.CreateState = true
		s.RequeueAfter = frame.CatchUp // its event comes first, unless the cache had not seen one that exists
		return
	}
	if view.TSC > 0 && GivenTSC(view.VMI) == 0 {
		s.Status.TopologyHints = &v1.TopologyHints{TSCFrequency: &view.TSC} // and the pod once nodes hear of it
		return
	}
	s.fill(view)
}

// wait keeps the VMI Pending and says why.
func (s *Step) wait(view View, reason, message string) {
	old := conditions.Find(s.Status.Conditions, v1.VirtualMachineInstanceSynchronized)
	if old == nil || old.Message != message {
		s.Events = append(s.Events, Event{corev1.EventTypeWarning, reason, message})
	}
	s.pending(view)
	conditions.Set(&s.Status.Conditions, notSynchronized(reason, message), view.Now)
}

func (s *Step) pending(view View) {
	setPhase(&s.Status, v1.Pending, view.Now)
	conditions.Set(&s.Status.Conditions, notRunning(), view.Now)
}

// nameRevision names the start revision, together with a phase: alone it would be a write of its own.
func (s *Step) nameRevision(view View) {
	if s.Status.VirtualMachineRevisionName == "" {
		s.Status.VirtualMachineRevisionName = startRevision(view.VMI)
	}
}

// waitForNode writes phase Scheduling. The pod's own message on why it has no node is copied.
func (s *Step) waitForNode(view View, pod *corev1.Pod) {
	scheduled := conditions.Find(pod.Status.Conditions, corev1.PodScheduled)
	if scheduled == nil && view.VMI.Status.Phase != v1.Scheduling {
		if left := scheduleGrace - view.Now.Sub(pod.CreationTimestamp.Time); left > 0 {
			s.RequeueAfter = left
			return
		}
	}
	setPhase(&s.Status, v1.Scheduling, pod.CreationTimestamp.Time)
	s.nameRevision(view)
	s.Status.ActivePods = map[types.UID]string{pod.UID: ""}
	conditions.Remove(&s.Status.Conditions, v1.VirtualMachineInstanceSynchronized)
	conditions.Set(&s.Status.Conditions, notRunning(), view.Now)
	if scheduled != nil && scheduled.Status == corev1.ConditionFalse {
		conditions.Set(&s.Status.Conditions, v1.VirtualMachineInstanceCondition{
			Type:   v1.VirtualMachineInstanceConditionType(corev1.PodScheduled),
			Status: scheduled.Status, Reason: scheduled.Reason, Message: scheduled.Message,
		}, view.Now)
	}
}

// schedule writes phase Scheduled: everything that virt-handler and the launcher want to know of the status, which is
// in one patch. The node label, by which virt-handler finds the VMI, comes in a second patch after it.
func (s *Step) schedule(view View, pod *corev1.Pod) {
	status := &s.Status
	if status.Phase == v1.VmPhaseUnset {
		setPhase(status, v1.Pending, view.VMI.CreationTimestamp.Time)
	}
	setPhase(status, v1.Scheduling, pod.CreationTimestamp.Time)
	setPhase(status, v1.Scheduled, view.Now)
	s.nameRevision(view)
	status.NodeName = pod.Spec.NodeName
	status.ActivePods = map[types.UID]string{pod.UID: pod.Spec.NodeName}
	status.RuntimeUser = names.User
	if qos := pod.Status.QOSClass; qos != "" {
		status.QOSClass = &qos
	}
	if len(pod.Spec.Containers) > 0 {
		status.LauncherContainerImageVersion = pod.Spec.Containers[0].Image
	}
	status.VolumeStatus = volumeStatus(view.VMI, view.Claims)
	if view.CID != 0 {
		status.VSOCKCID = &view.CID
	}
	filled(status, view)
	conditions.Remove(&status.Conditions, corev1.PodScheduled)
	conditions.Remove(&status.Conditions, v1.VirtualMachineInstanceSynchronized)
	conditions.Set(&status.Conditions, notRunning(), view.Now)
	s.NodeLabel = pod.Spec.NodeName
}

// finish ends the VMI for good.
func (s *Step) finish(view View, phase v1.VirtualMachineInstancePhase, reason, message string) {
	setPhase(&s.Status, phase, view.Now)
	s.Status.Reason = reason
	conditions.Remove(&s.Status.Conditions, corev1.PodScheduled)
	conditions.Set(&s.Status.Conditions, notReady(reason, message), view.Now)
}

// podOver returns why a pod has ended.
func podOver(pod *corev1.Pod) (reason, message string) {
	reason, message = pod.Status.Reason, pod.Status.Message
	for i := range pod.Status.ContainerStatuses {
		if ended := pod.Status.ContainerStatuses[i].State.Terminated; ended != nil {
			if reason == "" {
				reason = ended.Reason
			}
			if message == "" {
				message = strings.TrimSpace(ended.Message)
			}
		}
	}
	if reason == "" {
		reason = "Pod" + string(pod.Status.Phase)
	}
	return reason, strings.TrimSuffix(fmt.Sprintf("pod %s ended: %s", pod.Name, message), ": ")
}

func notDeleted(pods []*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
}
