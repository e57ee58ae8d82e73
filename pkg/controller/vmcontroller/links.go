package vmcontroller

import (
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/rollout"
)

// relink writes the states of a template's interfaces into a VMI made from it, but for one that the VMI has
// unplugged: it comes back as a new one does. follows says by name which interfaces. It reports whether something was
// written.
func relink(template, instance *v1.VirtualMachineInstanceSpec, follows func(string) bool) (changed bool) {
	wanted := map[string]v1.InterfaceState{}
	for _, nic := range template.Domain.Devices.Interfaces {
		wanted[nic.Name] = state(nic.State)
	}
	interfaces := instance.Domain.Devices.Interfaces
	for i := range interfaces {
		nic := &interfaces[i]
		want, known := wanted[nic.Name]
		if known && follows(nic.Name) && want != state(nic.State) && nic.State != v1.InterfaceStateAbsent {
			nic.State, changed = want, true
		}
	}
	return changed
}

// state returns a state where none stands for up.
func state(s v1.InterfaceState) v1.InterfaceState {
	if s == "" {
		return v1.InterfaceStateLinkUp
	}
	return s
}

// followLinks brings the states of the VM's interfaces into its VMI, from which virt-handler takes them.
func (view *View) followLinks() {
	instance := view.VMI
	if !life.Staying(instance) || migrations.Begun(instance) {
		return
	}
	after := instance.DeepCopy()
	taken, known := rollout.Taken(instance)
	// Others than the guest has wait for its restart as a whole.
	follows := func(name string) bool { return !known || taken.Has(name) }
	if relink(&view.VM.Spec.Template.Spec, &after.Spec, follows) {
		view.VMI = after
	}
}
