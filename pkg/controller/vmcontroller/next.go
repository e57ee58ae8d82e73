package vmcontroller

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/identity"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// reasonInvalidStrategy is the Failure reason of a run strategy that is none.
const reasonInvalidStrategy = "InvalidRunStrategy"

// reasonRenaming is the Failure reason of a VM that is to take the place of another.
const reasonRenaming = "Renaming"

// Step holds what to write, in the order of its fields; the zero Step writes nothing.
type Step struct {
	// Invalid is the reason why nothing can be done; it is alone.
	Invalid error
	// AddFinalizer is done alone but for MACs: its event brings the next step.
	AddFinalizer bool
	// MACs is the VM's annotation macaddress.Annotation as it should be, IPs ipaddress.Annotation; empty leaves it.
	MACs, IPs string
	// Resumed says that the VM's guest has gone on from the memory of a snapshot. It is done alone, too.
	Resumed bool
	// Revisions are copies to make of what the VM refers to.
	Revisions []*appsv1.ControllerRevision
	// VMI is the VM's VMI as it should be, in one write; nil leaves it.
	VMI    *v1.VirtualMachineInstance
	Events []vmicontroller.Event
	// Strategy is the run strategy that the VM's spec should have. Its event brings the next step.
	Strategy v1.VirtualMachineRunStrategy
	// DataVolumes are the DataVolumes to make.
	DataVolumes []*v1.DataVolumeTemplateSpec
	// Create is the VMI to make, after Start, the copy of the spec that it is made from; DropStarts are the copies of
	// earlier starts.
	Create     *v1.VirtualMachineInstance
	Start      *appsv1.ControllerRevision
	DropStarts []*appsv1.ControllerRevision
	// Status says to write the status, computed from After and Decision. After is the view as it will be once the rest
	// is done; where that fails, or finds another VMI of the name, the answer changes it (answers.go).
	Status   bool
	After    View
	Decision Decision
	// Delete says to delete the VMI. What is to be remembered about it is in the status, which is written before.
	Delete          bool
	RemoveFinalizer bool
	// failed is the reason why the VMI could not be made, which the status reports.
	failed error
	frame.Requeue
}

// Next decides.
func Next(view View) Step {
	vm := view.VM
	if vm.DeletionTimestamp == nil && !slices.Contains(vm.Finalizers, v1.VirtualMachineControllerFinalizer) {
		step := Step{AddFinalizer: true}
		if err := step.recordMACs(&view); err != nil {
			return Step{Invalid: err}
		}
		return step
	}
	if view.resumed() {
		return view.forgetResume()
	}
	step := Step{After: view}
	after := &step.After
	after.awaitRename()
	if err := errors.Join(step.recordMACs(&view), step.recordIPs(&view)); err != nil {
		return Step{Invalid: err}
	}
	if err := step.follow(); err != nil {
		return Step{Invalid: err}
	}
	step.change(view)
	var err error
	if step.Decision, err = Decide(*after); err != nil {
		after.Failure, after.FailureReason = err.Error(), reasonInvalidStrategy
		after.DataVolumes = nil // they are not asked for
		step.Status = true
		return step
	}
	if step.Strategy = step.Decision.Strategy; step.Strategy != "" {
		return step
	}
	step.provide()
	after.dumpMemory()
	step.change(view)
	step.RequeueAfter = step.Decision.RequeueAfter
	if err := step.act(); err != nil {
		return Step{Invalid: err}
	}
	if after.Failure != "" {
		step.DataVolumes = nil
	}
	return step
}

// awaitRename has a VM that is to replace another do nothing: until the rename is done the disks are the
// other's.
func (view *View) awaitRename() {
	from, err := identity.RenamingOf(view.VM)
	switch {
	case err != nil:
		view.fail(reasonRenaming, err.Error()+"; remove it if the VM is to start")
	case from != nil:
		view.fail(reasonRenaming, fmt.Sprintf("VM %s is being renamed to %s; `virtctl rename %[1]s %[2]s` finishes it",
			from.Name, view.VM.Name))
	}
}

// change has the VMI written if it is to be another than it was.
func (s *Step) change(was View) {
	if s.After.VMI != was.VMI {
		s.VMI = s.After.VMI
	}
}

// follow brings into the VMI what of a changed VM its guest, which runs, is to have.
func (s *Step) follow() error {
	view := &s.After
	if view.Adopt {
		view.VMI = view.VMI.DeepCopy()
		own(view.VM, view.VMI)
	}
	if err := s.pin(); err != nil {
		return err
	}
	view.followOptIn()
	view.followVolumes()
	resized, moved := view.followSize(), view.followPlacement()
	limited := view.followLimits()
	copied, err := view.followClaims()
	if err == nil {
		err = view.forgetCopies()
	}
	if err != nil {
		return err
	}
	plugged, err := view.followInterfaces()
	view.followLinks()
	err = errors.Join(err, view.followIPs())
	if err == nil && (copied || resized || moved || limited || plugged) {
		view.observe()
	}
	return err
}

// observe makes the VMI, which was just changed, one of the VM's generation if it has all of its changes. Before its
// guest runs size and volumes do not follow yet.
func (view *View) observe() {
	if view.VMI.Status.Phase == v1.Running && !view.Volumes.Waiting && !restartRequired(*view) {
		view.VMI.Annotations[v1.VirtualMachineGenerationAnnotation] = strconv.FormatInt(view.VM.Generation, 10)
	}
}

// act makes the VMI, deletes it, or lets the VM go.
func (s *Step) act() error {
	view, action := &s.After, s.Decision.Action
	if action == Create && view.Misfit != "" {
		s.reportMisfit()
	}
	if view.Clash != "" && (action == Create || life.Alive(view.VMI)) {
		s.reportClash()
	}
	if (view.Failure != "" || !view.Filled) && action == Create {
		action = Keep // The name is taken, what the VM refers to is not there, or its volumes are not.
		s.Decision.Action = action
	}
	if volumemigration.Unfinished(view.VM, view.VMI) && action == Create {
		action = Keep // Its volumes are to be reverted, which brings the next step.
		s.Decision.Action = action
	}
	if view.Brought && action == Create {
		action = Keep // What it names may be empty; the write that ends that brings the next step.
		s.Decision.Action = action
	}
	if snapshots.Restoring(view.VM) && action == Create {
		action = Keep // Its disks are being replaced; the write that ends that brings the next step.
		s.Decision.Action = action
	}
	s.Status = true
	switch action {
	case Create:
		if err := s.create(); err != nil {
			return err
		}
	case Delete:
		s.Delete = true
		// The status already says what the VMI will be.
		view.VMI = view.VMI.DeepCopy()
		view.VMI.DeletionTimestamp = &metav1.Time{Time: view.Now}
	case Keep:
		gone := view.VM.DeletionTimestamp != nil && view.VMI == nil
		orphan := view.VM.DeletionTimestamp != nil &&
			slices.Contains(view.VM.Finalizers, metav1.FinalizerOrphanDependents)
		s.Status, s.RemoveFinalizer = !gone, gone || orphan
	}
	s.again()
	return nil
}

func (s *Step) create() (err error) {
	view := &s.After
	template := view.expand()
	if template == nil {
		s.reportMissing()
		return nil
	}
	if s.Create, err = instanceOf(view.VM, template, s.Decision.Paused); err != nil {
		return err
	}
	resume(view.VM, s.Create)
	if len(view.TakenIPs) > 0 {
		if err := giveIPs(s.Create, view.startingIPs()); err != nil {
			return err
		}
	}
	if s.Start, err = startRevision(view); err != nil {
		return err
	}
	s.DropStarts = earlierStarts(view, s.Start)
	return nil
}

// again looks again at a VM that waits for what nobody watches.
func (s *Step) again() {
	switch s.After.FailureReason {
	case reasonNoInstancetype, reasonNoPreference, reasonNotApplied, reasonNoCDI, reasonUnauthorized,
		reasonFailedDataVolume, reasonMACInUse, reasonIPInUse:
		s.RequeueAfter = retryMissing
	}
	if in := s.After.SandboxIn; in > 0 && (s.RequeueAfter == 0 || s.RequeueAfter > in) {
		s.RequeueAfter = in
	}
	if s.After.Unsettled && (s.RequeueAfter == 0 || s.RequeueAfter > frame.CatchUp) {
		s.RequeueAfter = frame.CatchUp
	}
}

// reportMissing makes an event of what the VM refers to and is not there, once.
func (s *Step) reportMissing() {
	if view := &s.After; view.Missing != nil && !hasFailure(view.VM, view.Failure) {
		s.Events = append(s.Events,
			vmicontroller.Event{Type: corev1.EventTypeWarning, Reason: view.FailureReason, Message: view.Failure})
	}
}

// claim makes the VMI the view's if it is the VM's, or if it is nobody's, and then to be adopted.
func (view *View) claim(instance *v1.VirtualMachineInstance) {
	owner := metav1.GetControllerOfNoCopy(instance)
	switch {
	case owner != nil && owner.UID == view.VM.UID:
		view.VMI = instance
	case owner == nil && view.VM.DeletionTimestamp == nil && instance.DeletionTimestamp == nil:
		view.VMI, view.Adopt = instance, true
	case view.VM.DeletionTimestamp == nil:
		view.FailureReason = reasonNotOwned
		view.Failure = fmt.Sprintf("VirtualMachineInstance %q exists and does not belong to this VirtualMachine; "+
			"delete it, or rename the VirtualMachine", instance.Name)
	}
}

// own makes a VMI the VM's.
func own(vm *v1.VirtualMachine, instance *v1.VirtualMachineInstance) {
	instance.OwnerReferences = append(instance.OwnerReferences,
		*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind))
}

func hasFailure(vm *v1.VirtualMachine, message string) bool {
	failure := conditions.Find(vm.Status.Conditions, v1.VirtualMachineFailure)
	return failure != nil && failure.Message == message
}
