package poolcontroller

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/pool/v1beta1"

	"github.com/virtkit/virtkit/pkg/controller/vmcontroller"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/pools"
)

// Update is a VM that is to be brought to its pool's template.
type Update struct {
	VM *v1.VirtualMachine
	// Patch does so, nil when there is nothing to write; Err is why there is none.
	Patch []byte
	Err   error
}

// updated returns how a VM gets to its pool's template, which has the name revision.
func updated(view View, m Machine, revision string) Update {
	to := pools.Machine(view.Pool, pools.TemplateOf(view.Pool), m.Ordinal, revision)
	var from *v1.VirtualMachine
	before := m.VM.Labels[v1.VirtualMachinePoolRevisionName]
	if template := view.Revisions[before]; template != nil {
		from = pools.Machine(view.Pool, template, m.Ordinal, before)
	}
	patch, err := Change(m.VM, from, to)
	return Update{VM: m.VM, Patch: patch, Err: err}
}

// update brings VMs to the pool's template: the VM first, at once, since that disturbs nobody, and then its guest by a
// restart, never more of them away at a time than maxUnavailable says.
func (s *Step) update(view View, staying []Machine) {
	strategy := view.Pool.Spec.UpdateStrategy
	if strategy != nil && strategy.Unmanaged != nil {
		return
	}
	restarts := strategy == nil || strategy.Opportunistic == nil
	var disturb []Machine
	for _, m := range choose(view, staying, updatePolicy(view.Pool)) {
		switch old, fresh := outdated(view, m); {
		case m.Ordinal < 0: // Somebody gave it to the pool; what the template makes of it is not known.
		case old && restarts && fresh:
			disturb = append(disturb, m)
		case old:
			s.Update = append(s.Update, updated(view, m, s.Revision))
		case !restarts || !life.Staying(m.VMI) || len(m.VM.Status.StateChangeRequests) > 0:
		case guestOutdated(view, m):
			if restartable(m.VM) {
				disturb = append(disturb, m)
			}
		case m.VMI.Labels[v1.VirtualMachinePoolRevisionName] != m.VM.Labels[v1.VirtualMachinePoolRevisionName]:
			s.Relabel = append(s.Relabel, m)
		}
	}
	s.disturb(view, staying, disturb)
}

// disturb chooses whose guests are restarted now. Those that are away anyway come first and cost nothing.
func (s *Step) disturb(view View, staying, candidates []Machine) {
	left := maxUnavailable(view.Pool)
	for _, m := range staying {
		if wanted(m.VM) && !available(m) {
			left--
		}
	}
	for _, m := range candidates {
		if available(m) {
			if left <= 0 {
				continue
			}
			left--
		}
		if old, _ := outdated(view, m); old {
			s.Replace = append(s.Replace, m.VM)
		} else {
			s.Restart = append(s.Restart, m)
		}
	}
}

// outdated reports a VM that another template made, and whether it must be made afresh: its DataVolumes are others,
// which a VM that is changed would not notice, since those that there are have the names.
func outdated(view View, m Machine) (old, fresh bool) {
	made := view.Revisions[m.VM.Labels[v1.VirtualMachinePoolRevisionName]]
	now := pools.TemplateOf(view.Pool)
	if made == nil {
		return true, false
	}
	if equality.Semantic.DeepEqual(made, now) {
		return false, false
	}
	return true, !equality.Semantic.DeepEqual(made.VirtualMachineTemplate.Spec.DataVolumeTemplates,
		now.VirtualMachineTemplate.Spec.DataVolumeTemplates)
}

// guestOutdated reports a guest that runs with what an earlier template said.
func guestOutdated(view View, m Machine) bool {
	revision := m.VMI.Labels[v1.VirtualMachinePoolRevisionName]
	if revision == m.VM.Labels[v1.VirtualMachinePoolRevisionName] {
		return false
	}
	if vmcontroller.RestartRequired(m.VM, m.VMI) {
		return true
	}
	made := view.Revisions[revision]
	if made == nil || made.VirtualMachineTemplate.Spec.Template == nil || m.VM.Spec.Template == nil {
		return true // Nobody knows any more what it was made from.
	}
	// The labels and annotations of a VMI are those of its pod, which cannot be changed from here.
	was, is := made.VirtualMachineTemplate.Spec.Template.ObjectMeta,
		view.Pool.Spec.VirtualMachineTemplate.Spec.Template.ObjectMeta
	return !maps.Equal(was.Labels, is.Labels) || !maps.Equal(was.Annotations, is.Annotations)
}

// restartable reports a VM whose guest starts again when it is stopped. One that runs once would not.
func restartable(machine *v1.VirtualMachine) bool {
	strategy, err := machine.RunStrategy()
	return err == nil &&
		(strategy == v1.RunStrategyAlways || strategy == v1.RunStrategyRerunOnFailure ||
			strategy == v1.RunStrategyManual)
}

// wanted reports a VM that should run: one that was stopped is not missed, but one that cannot start is.
func wanted(machine *v1.VirtualMachine) bool {
	strategy, err := machine.RunStrategy()
	stopped := machine.Status.PrintableStatus == v1.VirtualMachineStatusStopped &&
		!conditions.True(machine.Status.Conditions, v1.VirtualMachineFailure)
	return err == nil && strategy != v1.RunStrategyHalted && !stopped
}

// maxUnavailable returns how many VMs of a pool may be unavailable at a time because of an update; at least one.
func maxUnavailable(p *v1beta1.VirtualMachinePool) int {
	replicas := pools.Replicas(p)
	if p.Spec.MaxUnavailable == nil {
		return max(replicas, 1)
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(p.Spec.MaxUnavailable, replicas, false)
	if err != nil {
		return 1 // Admission refuses it.
	}
	return max(n, 1)
}

// currentRevision returns the revision of the pool's template: the newest that says the same, or one that is to be
// made.
func currentRevision(view View) (name string, missing bool) {
	now := pools.TemplateOf(view.Pool)
	var same []string
	for name, template := range view.Revisions {
		if equality.Semantic.DeepEqual(template, now) {
			same = append(same, name)
		}
	}
	if len(same) > 0 {
		return slices.MaxFunc(same, pools.CompareRevisions), false
	}
	return pools.RevisionName(view.Pool.Name, view.Pool.Generation), true
}

// prune finds revisions that no VM and no guest has any more.
func (s *Step) prune(view View) {
	used := map[string]bool{s.Revision: true}
	for _, m := range view.Machines {
		used[m.VM.Labels[v1.VirtualMachinePoolRevisionName]] = true
		if m.VMI != nil {
			used[m.VMI.Labels[v1.VirtualMachinePoolRevisionName]] = true
		}
	}
	for name := range view.Revisions {
		if !used[name] {
			s.Prune = append(s.Prune, name)
		}
	}
	slices.SortFunc(s.Prune, pools.CompareRevisions)
}
