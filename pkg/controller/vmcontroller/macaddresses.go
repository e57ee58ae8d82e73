package vmcontroller

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/vm/identity"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/macaddress"
)

// A VM's MAC addresses are recorded with its finalizer, before it starts for the first time, and again when its guest
// has others: because an interface was added, the CNI plugin did not take the recorded one, or the guest was started by
// a virtkit that recorded none. Admission refuses an address that another VM has; two that are admitted at the same
// moment, and VMs that components make, are compared here, with the VMIs that there are.

const (
	vmisByMAC = "mac"
	// reasonMACInUse is the Failure reason, and that of an event, of a VM whose MAC address another VM's guest has.
	reasonMACInUse = "MACAddressInUse"
	// reasonMACChanged is the reason of an event.
	reasonMACChanged = "MACAddressChanged"
)

// sharedMACs are the addresses of a VMI that must not be on their network twice.
func sharedMACs(vmi *v1.VirtualMachineInstance) (out []string) {
	if !life.Alive(vmi) {
		return nil
	}
	for _, claim := range macaddress.OfVMI(vmi) {
		if claim.Shared {
			out = append(out, claim.Key())
		}
	}
	return out
}

// lookAtMACs finds out whether another VM's guest has a MAC address of the VM's on its network. Of two guests that have
// it the one that was made first may.
func (r *Reconciler) lookAtMACs(ctx context.Context, view *View) error {
	claims := macaddress.OfVM(view.VM)
	if view.VMI != nil {
		claims = macaddress.OfVMI(view.VMI)
	}
	for _, claim := range claims {
		if !claim.Shared {
			continue
		}
		var others v1.VirtualMachineInstanceList
		err := r.Client.List(ctx, &others, client.MatchingFields{vmisByMAC: claim.Key()})
		if err != nil {
			return fmt.Errorf("list VMIs with MAC address %s: %w", claim.MAC, err)
		}
		if view.Clash = clash(view, &claim, others.Items); view.Clash != "" {
			return nil
		}
	}
	return nil
}

// clash returns why the VM may not have a MAC address that the guests of others have; "" if it may.
func clash(view *View, claim *macaddress.Claim, others []v1.VirtualMachineInstance) string {
	for i := range others {
		other := &others[i]
		if other.Namespace == view.VM.Namespace && other.Name == view.VM.Name ||
			view.VMI != nil && !before(other, view.VMI) {
			continue
		}
		holder := fmt.Sprintf("VirtualMachineInstance %s/%s", other.Namespace, other.Name)
		if owner := metav1.GetControllerOfNoCopy(other); owner != nil &&
			owner.Kind == v1.VirtualMachineGroupVersionKind.Kind {
			holder = fmt.Sprintf("VM %s/%s", other.Namespace, owner.Name)
		}
		for _, theirs := range macaddress.OfVMI(other) {
			if theirs.Key() == claim.Key() {
				return fmt.Sprintf("interface %s: %s", claim.Interface, claim.Taken(holder, theirs.Interface))
			}
		}
	}
	return ""
}

// before orders VMIs by when they were made, and by their names where that is the same second.
func before(a, b *v1.VirtualMachineInstance) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Namespace+"/"+a.Name < b.Namespace+"/"+b.Name
}

// reportClash says in the VM's status that another guest has its MAC address, which keeps it from starting, and records
// an event for it, once.
func (s *Step) reportClash() { s.report(reasonMACInUse, s.After.Clash) }

// recordMACs has the step write the VM's MAC addresses where they are not recorded as they are.
func (s *Step) recordMACs(view *View) error {
	vm := view.VM
	if _, renaming := vm.Annotations[identity.RenamingFrom]; renaming {
		return nil // it is not the guest's VM yet
	}
	has, want := macaddress.Recorded(vm), macaddress.Wanted(vm, view.VMI)
	text, given := vm.Annotations[macaddress.Annotation]
	if vm.DeletionTimestamp != nil || len(want) == 0 && !given || len(has) > 0 && maps.Equal(has, want) {
		return nil
	}
	encoded, err := macaddress.Encode(vm.Namespace, vm.Name, want)
	if err != nil || encoded == text {
		return err
	}
	s.MACs = encoded
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if old := has[name]; old != "" && macaddress.Normal(old) != want[name] {
			s.Events = append(s.Events, vmicontroller.Event{
				Type: corev1.EventTypeWarning, Reason: reasonMACChanged,
				Message: fmt.Sprintf("Interface %s has the MAC address %s, and had %s: what connects the pod to its "+
					"network has not taken that", name, want[name], old),
			})
		}
	}
	return nil
}

// giveMACs gives a VMI the record of its VM's MAC addresses.
func giveMACs(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, of *v1.VirtualMachineInstance) error {
	delete(vmi.Annotations, macaddress.Annotation)
	macs := macaddress.Wanted(vm, of)
	if len(macs) == 0 {
		return nil
	}
	text, err := macaddress.Encode(vm.Namespace, vm.Name, macs)
	if err == nil {
		vmi.Annotations[macaddress.Annotation] = text
	}
	return err
}

func (r *Reconciler) writeMACs(ctx context.Context, view View, step *Step) error {
	if step.MACs == "" {
		return nil
	}
	err := r.writes.Change(ctx, view.VM,
		func() { metav1.SetMetaDataAnnotation(&view.VM.ObjectMeta, macaddress.Annotation, step.MACs) })
	if err != nil {
		return fmt.Errorf("record the MAC addresses of VM %s: %w", view.VM.Name, err)
	}
	return nil
}
