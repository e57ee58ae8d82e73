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

func ips(all []ipaddress.Claim) (out []claim) {
	for _, c := range all {
		out = append(out, claim{nic: c.Interface, key: c.Key(), taken: c.Taken})
	}
	return out
}

func ipsOf(vmi *v1.VirtualMachineInstance) []claim { return ips(ipaddress.OfVMI(vmi)) }

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

// wantedIPs returns the VM's record as it should be.
func (view *View) wantedIPs() map[string]ipaddress.Given {
	if view.VMI == nil {
		return ipaddress.Wanted(view.VM, nil, nil)
	}
	i := slices.IndexFunc(view.Pods, func(pod *corev1.Pod) bool { return life.GuestIn(view.VMI, pod) })
	if i < 0 {
		return ipaddress.Wanted(view.VM, nil, nil)
	}
	return ipaddress.Wanted(view.VM, view.VMI, func(nic *v1.Interface, n *v1.Network) ipaddress.Got {
		return network.Got(view.Pods[i].Annotations, nic, n)
	})
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

// followIPs brings the record of a guest's IP addresses into its VMI.
func (view *View) followIPs() error {
	if !life.Alive(view.VMI) || view.VMI.Status.NodeName == "" {
		return nil
	}
	want := view.wantedIPs()
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
