// Package poolcontroller keeps as many VirtualMachines as a VirtualMachinePool asks for, each with an ordinal in its
// name, and updates them when the pool's template changes. Its inputs are the pools, their VMs and VMIs, and the
// ControllerRevisions of the templates from which the VMs were made; its outputs are the creation, change and deletion
// of VMs, requests to restart their guests, and the revisions and status of the pools.
//
// The core is pure: Next (this file) decides which VMs are missing or too many, update.go which to change and which
// guests to restart, heal.go which to replace, Status (status.go) the status. pkg/vm/pools makes the VMs of a template.
// The Reconciler (reconciler.go, act.go) reads, asks them, and writes.
package poolcontroller

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/pool/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/pools"
)

// burst is the number of a pool's VMs that are made or deleted in one go; KubeVirt's.
const burst = 250

// Machine is one VM of a pool.
type Machine struct {
	VM *v1.VirtualMachine
	// VMI is the VM's VMI, nil when there is none.
	VMI *v1.VirtualMachineInstance
	// Ordinal is the ordinal in its name, -1 where the name has none.
	Ordinal int
	// Disks are the DataVolumes and claims that would go with the VM; read only where they may have to outlive it.
	Disks []client.Object
}

// View is the input of Next.
type View struct {
	Pool *v1beta1.VirtualMachinePool
	// Selector is the pool's, Machines the VMs that it owns.
	Selector labels.Selector
	Machines []Machine
	// Taken are the names that VMs of the namespace have; nil unless the pool lacks VMs.
	Taken map[string]bool
	// Revisions are the pool's, by name; nil for one that cannot be read.
	Revisions map[string]*pools.Template
	// Stored are these as they are kept.
	Stored map[string]*appsv1.ControllerRevision
	Now    time.Time
	// Shuffle brings n things into any order, as rand.Shuffle does.
	Shuffle func(n int, swap func(i, j int))
}

// Step holds what to write; the zero Step writes nothing.
type Step struct {
	// Revision names the revision of the pool's template, and MakeRevision says that it does not exist yet.
	Revision     string
	MakeRevision bool
	// Release are VMs that the selector does not match any more.
	Release []*v1.VirtualMachine
	// Create are the ordinals of the VMs that are missing.
	Create []int
	// Delete are VMs that are too many; Heal and Replace are VMs to be made anew, because they cannot start, or because
	// the DataVolumes of their template have changed.
	Delete, Heal, Replace []*v1.VirtualMachine
	// Preserve says that the disks of the VMs in Delete outlive them, Keep has these by the VM's UID.
	Preserve bool
	Keep     map[types.UID][]client.Object
	// Update are VMs that have another template, Restart are VMs whose guest has, and Relabel are VMs whose guest is as
	// the template wants it, though it was made from an earlier one.
	Update           []Update
	Restart, Relabel []Machine
	// Prune are revisions that nothing was made from any more.
	Prune []string
	frame.Requeue
}

// Next decides. A pool that is being deleted or paused does nothing but let VMs go that are not its own any more.
func Next(view View) Step {
	step := Step{}
	members := step.release(view)
	if view.Pool.DeletionTimestamp != nil || view.Pool.Spec.Paused {
		return step
	}
	step.Revision, step.MakeRevision = currentRevision(view)
	if step.MakeRevision {
		// VMs name it, so that it must be known first. Its event brings the next step.
		step.RequeueAfter = frame.CatchUp
		return step
	}
	staying := slices.DeleteFunc(slices.Clone(members), func(m Machine) bool { return m.VM.DeletionTimestamp != nil })
	staying = step.heal(view, staying)
	staying = step.scale(view, members, staying)
	step.update(view, staying)
	step.prune(view)
	return step
}

// release finds the VMs that are not the pool's any more and gives the others.
func (s *Step) release(view View) []Machine {
	var members []Machine
	for _, m := range view.Machines {
		if view.Pool.DeletionTimestamp == nil && m.VM.DeletionTimestamp == nil &&
			!view.Selector.Matches(labels.Set(m.VM.Labels)) {
			s.Release = append(s.Release, m.VM)
			continue
		}
		members = append(members, m)
	}
	return members
}

// lacks reports whether a pool has fewer VMs than it asks for.
func lacks(view View) bool { return len((&Step{}).release(view)) < pools.Replicas(view.Pool) }

// preserves reports whether a pool may have to delete VMs whose disks outlive them.
func preserves(view View) bool {
	return Preserves(view.Pool) && !view.Pool.Spec.Paused && view.Pool.DeletionTimestamp == nil &&
		len((&Step{}).release(view)) > pools.Replicas(view.Pool)
}

// scale compares numbers. What is being deleted keeps its name until it is gone, so that nothing is made in its place
// before; the VMs that stay are given.
func (s *Step) scale(view View, members, staying []Machine) []Machine {
	want := pools.Replicas(view.Pool)
	switch {
	case len(members) < want:
		s.Create = free(view, min(want-len(members), burst))
	case len(staying) > want && proactive(view.Pool):
		chosen := choose(view, staying, scaleInPolicy(view.Pool))
		chosen = chosen[:min(len(staying)-want, len(chosen), burst)]
		if s.Preserve = Preserves(view.Pool); s.Preserve {
			s.Keep = map[types.UID][]client.Object{}
		}
		for _, m := range chosen {
			s.Delete = append(s.Delete, m.VM)
			if s.Preserve {
				s.Keep[m.VM.UID] = m.Disks
			}
		}
		staying = slices.DeleteFunc(staying, func(m Machine) bool { return slices.Contains(s.Delete, m.VM) })
	}
	return staying
}

// free returns the first ordinals whose names nobody has.
func free(view View, n int) []int {
	used := map[string]bool{}
	for _, m := range view.Machines {
		used[m.VM.Name] = true
	}
	var out []int
	for ordinal := 0; len(out) < n; ordinal++ {
		if name := pools.Name(view.Pool.Name, ordinal); !used[name] && !view.Taken[name] {
			out = append(out, ordinal)
		}
	}
	return out
}

// proactive reports whether a pool deletes VMs that are too many.
func proactive(p *v1beta1.VirtualMachinePool) bool {
	return pools.KeepsExcess(p.Spec.ScaleInStrategy) == ""
}

// Preserves reports whether the disks of a VM outlive it when it is deleted because it is one too many. Of Online, the
// guest's memory does not, as in KubeVirt.
func Preserves(p *v1beta1.VirtualMachinePool) bool {
	strategy := p.Spec.ScaleInStrategy
	return strategy != nil && strategy.Proactive != nil && strategy.Proactive.StatePreservation != nil &&
		*strategy.Proactive.StatePreservation != v1beta1.StatePreservationDisabled
}

// available reports a VM whose guest runs, can be reached, and is not about to be restarted.
func available(m Machine) bool {
	return life.Running(m.VMI) && len(m.VM.Status.StateChangeRequests) == 0 &&
		conditions.True(m.VMI.Status.Conditions, v1.VirtualMachineInstanceReady) && Ready(m.VM)
}

// Ready reports whether a VM's conditions say that it can be reached.
func Ready(machine *v1.VirtualMachine) bool {
	return conditions.True(machine.Status.Conditions, v1.VirtualMachineReady)
}

// after has the next look come after d, unless an earlier one is planned.
func (s *Step) after(d time.Duration) { s.RequeueAfter = min(cmp.Or(s.RequeueAfter, d), d) }
