package virtapi

import (
	"context"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/identity"
	"github.com/virtkit/virtkit/pkg/vm/macaddress"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// validateMACs refuses MAC addresses that another VM of the cluster has on the same network, and a record of addresses
// that cannot be read. old is nil when the VM is made. What components make is not asked: virt-controller compares
// before a guest starts.
func (a *admission) validateMACs(
	ctx context.Context, vm, old *v1.VirtualMachine, by surface.Actor,
) (field.ErrorList, error) {
	if by.Component || vm.DeletionTimestamp != nil {
		return nil, nil
	}
	if errs := unreadable(vm.Annotations, annotationsOf(old), macaddress.Annotation, macaddress.Decode); len(errs) > 0 {
		return errs, nil
	}
	added := macaddress.OfVM(vm)
	if old != nil {
		added = macaddress.Added(added, macaddress.OfVM(old))
	}
	return a.taken(ctx, wantedMACs(added, field.NewPath("spec", "template", "spec")), vm, replaced(vm))
}

// replaced returns the name of the VM whose place a VM takes, "" for none.
func replaced(vm *v1.VirtualMachine) string {
	if from, err := identity.RenamingOf(vm); err == nil && from != nil {
		return from.Name
	}
	return ""
}

// validateInstanceMACs does what validateMACs does, for a new VMI.
func (a *admission) validateInstanceMACs(
	ctx context.Context, vmi *v1.VirtualMachineInstance, by surface.Actor,
) (field.ErrorList, error) {
	if by.Component {
		return nil, nil
	}
	if errs := unreadable(vmi.Annotations, nil, macaddress.Annotation, macaddress.Decode); len(errs) > 0 {
		return errs, nil
	}
	return a.taken(ctx, wantedMACs(macaddress.OfVMI(vmi), field.NewPath("spec")), vmi, "")
}

// wantedMACs says where claims are: in the spec, or in the record.
func wantedMACs(claims []macaddress.Claim, spec *field.Path) (out []wanted) {
	for i := range claims {
		c := &claims[i]
		at := recordPath(macaddress.Annotation)
		if c.Explicit {
			at = spec.Child("domain", "devices", "interfaces").Index(c.Index).Child("macAddress")
		}
		out = append(out, wanted{claim{byMAC, c.MAC, c.Key(), c.Interface}, at, c.Taken})
	}
	return out
}
