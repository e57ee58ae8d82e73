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
	"github.com/virtkit/virtkit/pkg/vm/ipaddress"
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
	for _, claim := range macsOf(vmi) {
		out = append(out, claim.key)
	}
	return out
}

// claim is an address of either kind that an interface has on its network.
type claim struct {
	nic, key string
	// taken says whose it is.
	taken func(holder, nic string) string
}

func macs(all []macaddress.Claim) (out []claim) {
	for _, c := range all {
		if c.Shared {
			out = append(out, claim{nic: c.Interface, key: c.Key(), taken: c.Taken})
		}
	}
	return out
}

func macsOf(vmi *v1.VirtualMachineInstance) []claim { return macs(macaddress.OfVMI(vmi)) }

// lookAtAddresses finds out whether another VM's guest has an address of the VM's on its network. Of two guests that
// have it the one that was made first may. An IP address that the network has chosen keeps no VM from its start: it
// gets another.
func (r *Reconciler) lookAtAddresses(ctx context.Context, view *View) error {
	macs, all := macs(macaddress.OfVM(view.VM)), ipaddress.OfVM(view.VM)
	if view.VMI != nil {
		macs, all = macsOf(view.VMI), ipaddress.OfVMI(view.VMI)
	}
	var err error
	view.Clash, _, err = r.lookAtClaims(ctx, view, vmisByMAC, macs, macsOf)
	if view.ClashReason = reasonMACInUse; err != nil || view.Clash != "" {
		return err
	}
	wished, recorded := ips(all, true), ips(all, false)
	view.Clash, _, err = r.lookAtClaims(ctx, view, vmisByIP, wished, ipsOf)
	if view.ClashReason = reasonIPInUse; err != nil || view.Clash != "" {
		return err
	}
	view.ClashReason = ""
	for view.VMI == nil && len(recorded) > 0 && err == nil {
		var at int
		var trouble string
		trouble, at, err = r.lookAtClaims(ctx, view, vmisByIP, recorded, ipsOf)
		if trouble == "" {
			break
		}
		view.TakenIPs = append(view.TakenIPs, recorded[at].nic)
		recorded = recorded[at+1:]
	}
	return err
}

// lookAtClaims returns the first of the VM's claims that the guests of others have, with why the VM may not have it; ""
// when there is none.
func (r *Reconciler) lookAtClaims(
	ctx context.Context, view *View, index string, claims []claim, of func(*v1.VirtualMachineInstance) []claim,
) (trouble string, at int, err error) {
	for i := range claims {
		var others v1.VirtualMachineInstanceList
		err := r.Client.List(ctx, &others, client.MatchingFields{index: claims[i].key})
		if err != nil {
			return "", 0, fmt.Errorf("list VMIs by %s address %s: %w", index, claims[i].key, err)
		}
		if trouble := clash(view, &claims[i], others.Items, of); trouble != "" {
			return trouble, i, nil
		}
	}
	return "", 0, nil
}

// clash returns why the VM may not have an address that the guests of others have; "" if it may.
func clash(
	view *View, mine *claim, others []v1.VirtualMachineInstance, of func(*v1.VirtualMachineInstance) []claim,
) string {
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
		for _, theirs := range of(other) {
			if theirs.key == mine.key {
				return fmt.Sprintf("interface %s: %s", mine.nic, mine.taken(holder, theirs.nic))
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

// reportClash says in the VM's status that another guest has its address, which keeps it from starting, and records an
// event for it, once.
func (s *Step) reportClash() { s.report(s.After.ClashReason, s.After.Clash) }

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
	return give(vmi, macaddress.Annotation, macaddress.Wanted(vm, of), macaddress.Encode)
}

// give writes a record into the annotation of a VMI, which has its VM's name; an empty one is left out.
func give[T any](
	vmi *v1.VirtualMachineInstance, annotation string, record map[string]T,
	encode func(namespace, name string, record map[string]T) (string, error),
) error {
	delete(vmi.Annotations, annotation)
	if len(record) == 0 {
		return nil
	}
	text, err := encode(vmi.Namespace, vmi.Name, record)
	if err == nil {
		metav1.SetMetaDataAnnotation(&vmi.ObjectMeta, annotation, text)
	}
	return err
}

// writeAddresses writes the VM's records of both kinds.
func (r *Reconciler) writeAddresses(ctx context.Context, view View, step *Step) error {
	if step.MACs == "" && step.IPs == "" {
		return nil
	}
	err := r.writes.Change(ctx, view.VM, func() { step.record(view.VM) })
	if err != nil {
		return fmt.Errorf("record the addresses of VM %s: %w", view.VM.Name, err)
	}
	return nil
}

// record sets the annotations of a VM's addresses as the step says.
func (s *Step) record(vm *v1.VirtualMachine) {
	for annotation, text := range map[string]string{macaddress.Annotation: s.MACs, ipaddress.Annotation: s.IPs} {
		if text != "" {
			metav1.SetMetaDataAnnotation(&vm.ObjectMeta, annotation, text)
		}
	}
}
