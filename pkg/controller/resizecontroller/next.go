// Package resizecontroller gives the pod of a running guest what the guest is to have: its VMI asks for more CPU
// sockets or memory than the guest has, since its VM was changed (pkg/controller/vmcontroller). Inputs are the
// VMI, its launcher pod and its migrations; outputs are the pod's resources, a migration where its node has no
// room, and the conditions HotVCPUChange and HotMemoryChange, by whose reason virt-handler knows when it may
// change the guest:
//
//	VMI ≠ guest ──► PodResizing: pods/resize ──► PodResized ──► virt-handler ──► VMI = guest: the conditions go
//	                     └► PodResizeInfeasible: a migration, whose pod has the size ─┘
//
// KubeVirt always moves the guest for this. A guest that cannot move and whose node has no room needs a restart, which
// the VM's status reports.
//
// The core is pure: Next (this file) decides what to do; the Reconciler (reconciler.go) reads, asks, and writes.
package resizecontroller

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/controller/migrationcontroller"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

const (
	cpus   = v1.VirtualMachineInstanceVCPUChange
	memory = v1.VirtualMachineInstanceMemoryChange
)

const (
	// patience is the time for which the kubelet may find no room before the guest moves instead.
	patience = 10 * time.Second
	// again is the delay before a refused write is tried again, and before the next look at what sends no event.
	again = 30 * time.Second
)

// View is the input of Next.
type View struct {
	VMI *v1.VirtualMachineInstance
	// Pod is the pod that the guest runs in, nil when there is none.
	Pod *corev1.Pod
	// Want holds what its container should have for both the current guest and the coming one, Fit for the coming one
	// alone.
	Want, Fit corev1.ResourceRequirements
	// Migrations are all of the VMI.
	Migrations []*v1.VirtualMachineInstanceMigration
	Now        time.Time
}

// Step holds what to write; a Step that is zero but for Status writes nothing else.
type Step struct {
	// Resize holds the resources of the pod's container as they should be; nil leaves them.
	Resize *corev1.ResourceRequirements
	// Migrate is the name of a migration to make; "" means none.
	Migrate string
	// Status is the VMI's status as it should be.
	Status v1.VirtualMachineInstanceStatus
	frame.Requeue
}

// Pending reports whether there may be anything to do for a VMI.
func Pending(vmi *v1.VirtualMachineInstance) bool {
	if !life.Running(vmi) {
		return false
	}
	return grows(vmi, cpus) || grows(vmi, memory) || sizing.Resizing(vmi, cpus) != nil ||
		sizing.Resizing(vmi, memory) != nil
}

// grows reports whether a guest is to have other CPUs, or another amount of memory, than it has.
func grows(vmi *v1.VirtualMachineInstance, kind v1.VirtualMachineInstanceConditionType) bool {
	if kind == cpus {
		sockets, most := sizing.Sockets(&vmi.Spec.Domain)
		t := vmi.Status.CurrentCPUTopology
		return t != nil && sockets <= most && int(t.Sockets) != sockets
	}
	_, ok := memoryLeft(vmi)
	return ok
}

// memoryLeft returns how much memory (bytes) a guest currently has while that is not what it is to have.
func memoryLeft(vmi *v1.VirtualMachineInstance) (current int64, ok bool) {
	m, s := vmi.Spec.Domain.Memory, vmi.Status.Memory
	if m == nil || m.Guest == nil || m.MaxGuest == nil || s == nil || s.GuestAtBoot == nil || s.GuestCurrent == nil ||
		s.GuestRequested == nil {
		return 0, false
	}
	if sizing.MemoryObstacle(&vmi.Spec.Domain) != "" || s.GuestAtBoot.Cmp(*m.Guest) > 0 {
		return 0, false
	}
	return s.GuestCurrent.Value(), s.GuestRequested.Cmp(*m.Guest) != 0 || s.GuestCurrent.Cmp(*m.Guest) != 0
}

// Next decides. While the guest moves, everything waits: its target pod is made for the sizes in the VMI.
func Next(view View) Step {
	vmi := view.VMI
	step := Step{Status: *vmi.Status.DeepCopy()}
	if !Pending(vmi) || view.Pod == nil || migrations.UnderWay(vmi) {
		return step
	}
	if !grows(vmi, cpus) && !grows(vmi, memory) {
		conditions.Remove(&step.Status.Conditions, cpus)
		conditions.Remove(&step.Status.Conditions, memory)
		if view.shrinks() {
			step.Resize = &view.Fit
		}
		return step
	}
	switch has, known := view.room(), view.refusal(); {
	case has == resized:
		step.set(view, sizing.ReasonPodResized, step.ready(view))
	case has == refused || view.fixed() != "":
		step.move(view, view.why())
	case has == asked:
		step.wait(view)
	case known != nil:
		step.migrate(view, known.Message)
	default:
		step.set(view, sizing.ReasonPodResizing, "Pod "+view.Pod.Name+" is being given what the guest is to have.")
		step.Resize = &view.Want
	}
	return step
}

// ready returns what is reported about a guest whose pod has room for its size.
func (s *Step) ready(view View) string {
	if current, ok := memoryLeft(view.VMI); ok && !grows(view.VMI, cpus) {
		of := view.VMI.Spec.Domain.Memory.Guest
		return fmt.Sprintf("The guest has %s of memory so far and is to have %s; its driver virtio_mem takes it and "+
			"gives it back.",
			resource.NewQuantity(current, resource.BinarySI), of)
	}
	return "Pod " + view.Pod.Name + " has room for what the guest is to have."
}

// wait follows what the kubelet makes of the request.
func (s *Step) wait(view View) {
	pending := view.condition(corev1.PodResizePending)
	if pending == nil {
		message := "Pod " + view.Pod.Name + " is being given what the guest is to have."
		if c := view.condition(corev1.PodResizeInProgress); c != nil && c.Message != "" {
			message += " The kubelet says: " + c.Message
		}
		s.set(view, sizing.ReasonPodResizing, message)
		s.RequeueAfter = again
		return
	}
	if left := patience - view.Now.Sub(pending.LastTransitionTime.Time); pending.Reason == corev1.PodReasonDeferred &&
		left > 0 {
		s.set(view, sizing.ReasonPodResizing, "Node "+view.Pod.Spec.NodeName+" has no room just now: "+pending.Message)
		s.RequeueAfter = left
		return
	}
	s.move(view, pending.Message)
}

// move lets the guest go to a node that has room. why says what keeps its pod from having more.
func (s *Step) move(view View, why string) {
	message := "Pod " + view.Pod.Name + " cannot grow on node " + view.Pod.Spec.NodeName
	if why != "" {
		message += ": " + strings.TrimRight(why, ".")
	}
	if refusal := migrations.Refusal(view.VMI); refusal != "" {
		s.set(view, sizing.ReasonRestart, message+". "+refusal+".")
		s.RequeueAfter = again
		return
	}
	s.migrate(view, message+". The guest moves to a pod of the size.")
}

// migrate makes a migration of a guest whose pod's node has no room, unless one is under way or failed a short time
// ago.
func (s *Step) migrate(view View, message string) {
	s.set(view, sizing.ReasonNoRoom, message)
	name, left := migrationcontroller.NextUpdate(view.Migrations, view.Now, string(view.VMI.UID), string(view.Pod.UID))
	if left > 0 {
		s.RequeueAfter = left
	}
	s.Migrate = name
}

// what a pod has of what it should have.
type room int

const (
	lacks   room = iota // and was not asked to have more
	asked               // by us, but the kubelet has not done so yet
	refused             // by the kubelet: the node can never have it
	resized
)

func (view View) room() room {
	spec := container(view.Pod)
	if spec == nil || !covers(spec.Resources, view.Want) {
		return lacks
	}
	if c := view.condition(corev1.PodResizePending); c != nil {
		if c.Reason == corev1.PodReasonInfeasible {
			return refused
		}
		return asked
	}
	if view.condition(corev1.PodResizeInProgress) != nil {
		return asked
	}
	for i := range view.Pod.Status.ContainerStatuses {
		if c := &view.Pod.Status.ContainerStatuses[i]; c.Name == names.ContainerCompute && c.Resources != nil &&
			covers(*c.Resources, view.Want) {
			return resized
		}
	}
	return asked
}

// refusal returns the condition of a guest whose pod, the API server has said, cannot have the room on its node, so
// that it is not asked again; nil when there is none. A guest that cannot move has none: only another answer helps it.
func (view View) refusal() *v1.VirtualMachineInstanceCondition {
	c := sizing.Resizing(view.VMI, view.kind())
	if c == nil || c.Reason != sizing.ReasonNoRoom || migrations.Refusal(view.VMI) != "" {
		return nil
	}
	return c
}

// kind returns the type of the condition that reports the progress.
func (view View) kind() v1.VirtualMachineInstanceConditionType {
	if grows(view.VMI, cpus) {
		return cpus
	}
	return memory
}

// fixed returns why Kubernetes cannot change what the guest needs more of while the pod runs; empty when it can.
func (view View) fixed() string {
	return sizing.PodObstacle(&view.VMI.Spec.Domain, grows(view.VMI, memory))
}

// why returns what keeps a pod from having more.
func (view View) why() string {
	if fixed := view.fixed(); fixed != "" {
		return fixed
	}
	if c := view.condition(corev1.PodResizePending); c != nil {
		return c.Message
	}
	return ""
}

// shrinks reports whether the pod has more than its guest needs.
func (view View) shrinks() bool {
	spec := container(view.Pod)
	if spec == nil || view.fixed() != "" || !covers(spec.Resources, view.Fit) {
		return false
	}
	for name, quantity := range view.Fit.Requests {
		if has := spec.Resources.Requests[name]; has.Cmp(quantity) > 0 {
			return true
		}
	}
	return false
}

// covers reports whether a container that has is large enough for what it should have.
func covers(has, should corev1.ResourceRequirements) bool {
	for name, quantity := range should.Requests {
		if had := has.Requests[name]; had.Cmp(quantity) < 0 {
			return false
		}
	}
	for name, quantity := range should.Limits {
		if had, limited := has.Limits[name]; limited && had.Cmp(quantity) < 0 {
			return false
		}
	}
	return true
}

func container(pod *corev1.Pod) *corev1.Container {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == names.ContainerCompute {
			return &pod.Spec.Containers[i]
		}
	}
	return nil
}

// condition returns a condition of the pod that is True, or nil.
func (view View) condition(kind corev1.PodConditionType) *corev1.PodCondition {
	return conditions.With(view.Pod.Status.Conditions, kind, corev1.ConditionTrue)
}

// set sets the conditions of the sizes that change to a reason.
func (s *Step) set(view View, reason, message string) {
	for _, kind := range []v1.VirtualMachineInstanceConditionType{cpus, memory} {
		conditions.SetIf(&s.Status.Conditions, grows(view.VMI, kind), v1.VirtualMachineInstanceCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message,
		}, view.Now)
	}
}
