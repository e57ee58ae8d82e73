// Package vmcontroller is the reconciler VirtualMachine → VirtualMachineInstance. Its inputs are the VM, its VMI, and
// for the printable status the VMI's pods and claims; its outputs are the VMI's creation and deletion and the VM's
// status.
//
// The core is pure: Decide (this file) decides by the run strategy, the requests and past failures; Instance
// (instance.go) plans the VMI, Status (status.go) the status, and Next (next.go) every write, also to the VMI of a
// running guest. The Reconciler (reconciler.go) reads, asks Next, and writes.
package vmcontroller

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/instancetype"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

// View is the input of Decide, Status and Next.
type View struct {
	VM *v1.VirtualMachine
	// VMI is the VM's own, nil when there is none.
	VMI *v1.VirtualMachineInstance
	// Adopt says that it has no owner yet.
	Adopt bool
	// Pods are the VMI's pods, Claims the existing claims that it uses.
	Pods   []*corev1.Pod
	Claims []*corev1.PersistentVolumeClaim
	Now    time.Time
	// Failure is the reason why the VMI could not be made or ended just now, or "" when it could.
	Failure string
	// FailureReason goes with Failure.
	FailureReason string
	// Resolved holds the objects that the VM refers to, as far as they are needed now; Missing says which of them
	// cannot be found or used, nil when all can.
	Resolved instancetype.Resolved
	Missing  *instancetype.NotFoundError
	// TemplateClaims are the names in spec.dataVolumeTemplates that have a claim; CDI says that the cluster has
	// DataVolumes.
	TemplateClaims map[string]bool
	CDI            bool
	// DataVolumes are the existing ones of the template's volumes and of spec.dataVolumeTemplates, by name; Filled says
	// that none of the latter keeps the VMI from starting.
	DataVolumes map[string]*cdiv1.DataVolume
	Filled      bool
	// Template is the spec of a VMI that would be made now, nil while that is not known; Change is the part of its size
	// that concerns the running guest.
	Template *v1.VirtualMachineInstanceSpec
	Change   sizing.Change
	// Volumes holds the changes of the template's hotplugged volumes that concern that guest.
	Volumes hotplug.Change
	// Staged says that the installation does not change guests that run.
	Staged bool
	// Referred says that the status is to record InstancetypeRef and PreferenceRef from now on.
	Referred                       bool
	InstancetypeRef, PreferenceRef *v1.InstancetypeStatusRef
	// Snapshotted says which volumes a snapshot would have. Unsettled says that this is not known yet.
	Snapshotted []v1.VolumeSnapshotStatus
	Unsettled   bool
	// Misfit is the reason why the guest must not go on from the memory that it is to be resumed from, or "" when it
	// may, and for a VM that boots.
	Misfit string
	// Clash is the reason why the VM must not have an address of its own, MAC or IP, which another VM's guest has on
	// the same network, or "" when it may. ClashReason goes with it.
	Clash, ClashReason string
	// TakenIPs are the interfaces whose recorded IP addresses other VMs' guests have. The VM, which has no VMI, starts
	// without asking for these.
	TakenIPs []string
	// Sandbox is what the kubelet says of a launcher pod of which it can make nothing, or "" when it can. SandboxIn is
	// after how long to ask again, 0 for not at all.
	Sandbox   string
	SandboxIn time.Duration
	// Starts are the copies of the spec that the VM was started with; known when it is about to start.
	Starts []*appsv1.ControllerRevision
	// OptIn says by claim that keeps the guest on its node whether its StorageClass opts in to migrations with disks;
	// known where the VM itself does not say so.
	OptIn map[string]bool
	// Brought says that the VM names claims because a migration brings its disks there (volumemigration.Record), and
	// that this migration has yet to say whether it keeps them.
	Brought bool
}

// Action is a write of the VMI.
type Action int

// The actions.
const (
	Keep Action = iota
	Create
	Delete
)

// Decision says what to do now, and what to remember for it.
type Decision struct {
	Action Action
	// Paused asks for the VMI to start paused.
	Paused bool
	// Strategy is the run strategy that the VM's spec should have before anything else is done; empty leaves it.
	Strategy v1.VirtualMachineRunStrategy
	// Wanted says that the VM should have a running VMI now, or as soon as the back-off is over.
	Wanted bool
	// Requests and StartFailure are the VM's status fields as they should be; they must be written before a VMI is
	// deleted.
	Requests     []v1.VirtualMachineStateChangeRequest
	StartFailure *v1.VirtualMachineStartFailure
	// RequeueAfter is the delay before the next look when no event comes; zero means never.
	RequeueAfter time.Duration
}

// Decide returns what is to happen with the VMI. The error is for an unknown run strategy.
func Decide(view View) (Decision, error) {
	vm, vmi := view.VM, view.VMI
	if vm.DeletionTimestamp != nil {
		return deletion(view), nil
	}
	strategy, err := vm.RunStrategy()
	if err != nil {
		return Decision{}, err
	}
	d := Decision{
		Requests:     pending(vm.Status.StateChangeRequests, vmi),
		StartFailure: vm.Status.StartFailure.DeepCopy(),
	}
	asked := next(d.Requests)
	if asked == v1.StopRequest {
		// What the user ends did not fail, and what was before is forgotten.
		d.StartFailure = nil
	} else {
		d.countFailure(view, strategy)
	}
	switch strategy {
	case v1.RunStrategyAlways:
		d.Wanted = true
	case v1.RunStrategyRerunOnFailure:
		if vmi != nil && vmi.Status.Phase == v1.Failed && vmi.DeletionTimestamp == nil && len(d.Requests) == 0 {
			// Remembered as a request, because the VMI, which shows its failure, is about to go.
			d.Requests = []v1.VirtualMachineStateChangeRequest{{Action: v1.StartRequest}}
			asked = v1.StartRequest
		}
		d.Wanted = asked == v1.StartRequest || initial(view, strategy) || life.Alive(vmi)
	case v1.RunStrategyOnce:
		d.Wanted = asked == v1.StartRequest || initial(view, strategy) || life.Alive(vmi)
	case v1.RunStrategyManual:
		d.Wanted = asked == v1.StartRequest || life.Alive(vmi)
	case v1.RunStrategyHalted:
		if len(d.Requests) > 0 && paused(d.Requests[len(d.Requests)-1]) {
			// A start that leaves the guest paused: the request is kept for when the strategy allows it.
			d.Strategy = v1.RunStrategyAlways
			return d, nil
		}
		d.Requests, d.StartFailure = nil, nil
	default:
		return Decision{}, fmt.Errorf("spec.runStrategy: %q is not supported; use Always, RerunOnFailure, Manual, "+
			"Once or Halted", strategy)
	}
	d.act(view, strategy, asked)
	return d, nil
}

func (d *Decision) act(view View, strategy v1.VirtualMachineRunStrategy, asked v1.StateChangeRequestAction) {
	vmi := view.VMI
	switch {
	case vmi == nil:
		if !d.Wanted {
			return
		}
		if left := retryIn(d.StartFailure, view.Now); left > 0 {
			d.RequeueAfter = left
			return
		}
		d.Action = Create
		d.Paused = asked == v1.StartRequest && paused(d.Requests[0])
	case vmi.DeletionTimestamp != nil:
		// Its end is on its way.
	case strategy == v1.RunStrategyHalted || asked == v1.StopRequest:
		d.Action = Delete
	case vmi.IsFinal() && d.Wanted:
		d.Action = Delete // To make room for a new one.
	case vmi.Status.Phase == v1.Succeeded && strategy == v1.RunStrategyRerunOnFailure:
		d.Action = Delete // As KubeVirt does; under Once and Manual it stays.
	}
}

// deletion decides for a VM that is being deleted: the VMI goes first, unless it is to be orphaned.
func deletion(view View) Decision {
	d := Decision{Requests: view.VM.Status.StateChangeRequests, StartFailure: view.VM.Status.StartFailure}
	orphan := slices.Contains(view.VM.Finalizers, metav1.FinalizerOrphanDependents)
	if view.VMI != nil && view.VMI.DeletionTimestamp == nil && !orphan {
		d.Action = Delete
	}
	return d
}

// pending drops requests that are fulfilled, from the first on: a stop whose VMI is gone, a start
// whose VMI is there.
func pending(
	requests []v1.VirtualMachineStateChangeRequest, vmi *v1.VirtualMachineInstance,
) []v1.VirtualMachineStateChangeRequest {
	for len(requests) > 0 {
		first := requests[0]
		switch first.Action {
		case v1.StopRequest:
			if vmi != nil && (first.UID == nil || *first.UID == vmi.UID) {
				return requests
			}
		case v1.StartRequest:
			if !life.Staying(vmi) {
				return requests
			}
		}
		requests = requests[1:]
	}
	return nil
}

// paused reports a request for a start that leaves the guest paused.
func paused(request v1.VirtualMachineStateChangeRequest) bool {
	return request.Action == v1.StartRequest &&
		request.Data[v1.StartRequestDataPausedKey] == v1.StartRequestDataPausedTrue
}

func next(requests []v1.VirtualMachineStateChangeRequest) v1.StateChangeRequestAction {
	if len(requests) == 0 {
		return ""
	}
	return requests[0].Action
}

// initial reports whether a strategy that starts a VM by itself once has not done so yet.
func initial(view View, strategy v1.VirtualMachineRunStrategy) bool {
	return view.VMI == nil && view.VM.Status.RunStrategy != strategy
}
