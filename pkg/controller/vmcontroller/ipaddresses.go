package vmcontroller

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/vm/identity"
	"github.com/virtkit/virtkit/pkg/vm/ipaddress"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

// A VM's IP addresses on networks of Multus are recorded when Multus has reported what the guest's pod got, in the VM
// for its next start, and in the VMI for the pod that the guest moves to. Which networks keep them
// vmicontroller.Networks says when it makes the pod.

const (
	vmisByIP = "ip"
	// reasonIPInUse is the Failure reason, and that of an event, of a VM whose IP address another VM's guest has.
	reasonIPInUse = "IPAddressInUse"
	// reasonIPChanged is the reason of an event.
	reasonIPChanged = "IPAddressChanged"
)

// ips returns the claims of addresses that are wished for, or of those that are recorded.
func ips(all []ipaddress.Claim, wished bool) (out []claim) {
	for _, c := range all {
		if c.Wished == wished {
			out = append(out, claim{nic: c.Interface, key: c.Key(), taken: c.Taken})
		}
	}
	return out
}

func ipsOf(vmi *v1.VirtualMachineInstance) []claim {
	all := ipaddress.OfVMI(vmi)
	return append(ips(all, true), ips(all, false)...)
}

// livingIPs are the IP addresses of a VMI that has not ended.
func livingIPs(vmi *v1.VirtualMachineInstance) (out []string) {
	if !life.Alive(vmi) {
		return nil
	}
	for _, claim := range ipsOf(vmi) {
		out = append(out, claim.key)
	}
	return out
}

// gotIPs returns what the pod of the VM's guest has got of its networks; nil while there is no such pod.
func (view *View) gotIPs() func(nic *v1.Interface, n *v1.Network) ipaddress.Got {
	if view.VMI == nil {
		return nil
	}
	i := slices.IndexFunc(view.Pods, func(pod *corev1.Pod) bool { return life.GuestIn(view.VMI, pod) })
	if i < 0 {
		return nil
	}
	return func(nic *v1.Interface, n *v1.Network) ipaddress.Got {
		return network.Got(view.Pods[i].Annotations, nic, n)
	}
}

// wantedIPs returns the VM's record as it should be.
func (view *View) wantedIPs() map[string]ipaddress.Given {
	got := view.gotIPs()
	if got == nil {
		return ipaddress.Wanted(view.VM, nil, nil)
	}
	return ipaddress.Wanted(view.VM, ipaddress.Held(view.VMI, got), got)
}

// startingIPs returns the record that a new VMI of the VM gets: that of the VM, without the addresses of others.
func (view *View) startingIPs() map[string]ipaddress.Given {
	out := ipaddress.Wanted(view.VM, nil, nil)
	for _, name := range view.TakenIPs {
		delete(out, name)
	}
	return out
}

// recordIPs has the step write the VM's IP addresses where they are not recorded as they are.
func (s *Step) recordIPs(view *View) error {
	vm := view.VM
	if _, renaming := vm.Annotations[identity.RenamingFrom]; renaming {
		return nil // it is not the guest's VM yet
	}
	has, want := ipaddress.Recorded(vm), view.wantedIPs()
	text, given := vm.Annotations[ipaddress.Annotation]
	if vm.DeletionTimestamp != nil || len(want) == 0 && !given || len(has) > 0 && ipaddress.Equal(has, want) {
		return nil
	}
	encoded, err := ipaddress.Encode(vm.Namespace, vm.Name, want)
	if err != nil || encoded == text {
		return err
	}
	s.IPs = encoded
	for _, name := range slices.Sorted(maps.Keys(want)) {
		old, now := has[name], want[name]
		if len(old.Addresses) > 0 && old.Network == now.Network && !slices.Equal(old.Addresses, now.Addresses) {
			s.Events = append(s.Events, vmicontroller.Event{
				Type: corev1.EventTypeWarning, Reason: reasonIPChanged,
				Message: fmt.Sprintf("Interface %s has the IP address %s on network %s, and had %s", name,
					strings.Join(now.Addresses, ", "), now.Network, strings.Join(old.Addresses, ", ")),
			})
		}
	}
	return nil
}

// followIPs records in the VMI which IP addresses its guest has.
func (view *View) followIPs() error {
	got := view.gotIPs()
	if !life.Alive(view.VMI) || view.VMI.Status.NodeName == "" || got == nil {
		return nil
	}
	want := ipaddress.Held(view.VMI, got)
	if ipaddress.Equal(want, ipaddress.Recorded(view.VMI)) {
		return nil
	}
	after := view.VMI.DeepCopy()
	if err := giveIPs(after, want); err != nil {
		return err
	}
	view.VMI = after
	return nil
}

// giveIPs gives a VMI, which has its VM's name, a record of IP addresses.
func giveIPs(vmi *v1.VirtualMachineInstance, given map[string]ipaddress.Given) error {
	return give(vmi, ipaddress.Annotation, given, ipaddress.Encode)
}
