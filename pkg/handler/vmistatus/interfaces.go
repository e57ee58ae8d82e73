package vmistatus

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

// Sources of what is known of an interface, as KubeVirt names them.
const (
	sourceDomain = "domain"
	sourceAgent  = "guest-agent"
	sourceMultus = "multus-status"
)

// interfaces merges the plan with what Multus and the agent say: a row for each interface of the VMI, the pod's first
// link before the others, then those that the guest has made for itself. The first address of the first row is the
// one by which others reach the guest: the pod's.
func interfaces(in Input) []v1.VirtualMachineInstanceNetworkInterface {
	if in.Plan == nil {
		return in.VMI.Status.Interfaces
	}
	var agent []v1.VirtualMachineInstanceNetworkInterface
	if in.Guest.AgentConnected {
		agent = agentInterfaces(in.Guest.InterfacesJson)
	}
	var attached []network.Attachment
	if in.Pod != nil {
		attached, _ = network.Attachments(in.Pod.Annotations)
	}
	links := in.Guest.GetInterfaceLinks()
	down, stays := map[string]bool{}, map[string]bool{}
	for _, spec := range in.VMI.Spec.Domain.Devices.Interfaces {
		link, there := links[spec.Name]
		down[spec.Name] = link == "down" || !there && spec.State == v1.InterfaceStateLinkDown
		stays[spec.Name] = spec.State != v1.InterfaceStateAbsent
	}
	var out []v1.VirtualMachineInstanceNetworkInterface
	for _, nic := range primaryFirst(in.Plan.Interfaces) {
		_, there := links[nic.Name]
		if !there && !stays[nic.Name] {
			continue
		}
		s := v1.VirtualMachineInstanceNetworkInterface{
			Name: nic.Name, MAC: nic.MAC, PodInterfaceName: nic.PodLink, LinkState: "up",
			QueueCount: int32(max(nic.Queues, 1)),
		}
		if down[nic.Name] {
			s.LinkState = "down"
		}
		var sources []string
		function := nic.Binding == network.SRIOV // is no link of libvirt's
		if function {
			s.LinkState, s.QueueCount = "", 0 // the device's own, which nobody reports
		}
		if there || function || len(links) == 0 { // or a launcher that does not report it
			sources = append(sources, sourceDomain)
		}
		for _, ip := range ordered(nic, in.Pod) {
			s.IPs = append(s.IPs, ip.String())
		}
		if i := slices.IndexFunc(agent, func(a v1.VirtualMachineInstanceNetworkInterface) bool {
			return nic.MAC != "" &&
				a.MAC == nic.MAC
		}); i >= 0 {
			sources = append(sources, sourceAgent)
			s.InterfaceName = agent[i].InterfaceName
			if nic.Binding != network.Masquerade && len(agent[i].IPs) > 0 {
				s.IPs = agent[i].IPs
			}
			agent = slices.Delete(agent, i, i+1)
		}
		if slices.ContainsFunc(attached,
			func(a network.Attachment) bool { return (!a.Default || function) && a.Interface == nic.PodLink }) {
			sources = append(sources, sourceMultus)
		}
		s.InfoSource = strings.Join(sources, ", ")
		if len(s.IPs) > 0 {
			s.IP = s.IPs[0]
		}
		out = append(out, s)
	}
	for _, a := range agent {
		a.InfoSource = sourceAgent
		if len(a.IPs) > 0 {
			a.IP = a.IPs[0]
		}
		out = append(out, a)
	}
	return out
}

// ordered returns the addresses of an interface's link or guest, on the pod network in the order of the pod's own: the
// cluster's first family is first. As in KubeVirt others than the pod's are left out there.
func ordered(nic network.Interface, pod *corev1.Pod) []netip.Addr {
	if nic.PodLink != network.PodLink || pod == nil {
		return nic.Offered()
	}
	var out []netip.Addr
	for _, ip := range pod.Status.PodIPs {
		a, err := netip.ParseAddr(ip.IP)
		if err == nil && slices.Contains(nic.PodIPs, a.Unmap()) {
			out = append(out, a.Unmap())
		}
	}
	if len(out) == 0 {
		return nic.PodIPs // the kubelet has not reported them yet, or another CNI plugin made the link
	}
	return out
}

func primaryFirst(all []network.Interface) []network.Interface {
	return slices.SortedStableFunc(slices.Values(all), func(a, b network.Interface) int {
		switch {
		case a.PodLink == network.PodLink && b.PodLink != network.PodLink:
			return -1
		case a.PodLink != network.PodLink && b.PodLink == network.PodLink:
			return 1
		}
		return 0
	})
}
