package why

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/why/netpolicy"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

// sourceRuns adds that the pod which is to connect does not run, has lost its guest, or has no address.
func (c *connecting) sourceRuns() {
	pod := c.f.Source.Pod
	if pod == nil {
		return
	}
	object, describe := "pod/"+pod.Name, "kubectl describe pod/"+pod.Name+" -n "+pod.Namespace
	switch phase := pod.Status.Phase; {
	case phase == corev1.PodSucceeded, phase == corev1.PodFailed:
		c.add(LayerSource, object, Broken, "SourceEnded",
			fmt.Sprintf("%s has ended: it is %s", c.f.Source, strings.ToLower(string(phase))), describe)
	case phase != corev1.PodRunning:
		c.add(LayerSource, object, Waiting, "SourceNotRunning",
			fmt.Sprintf("%s does not run: it is %s", c.f.Source, strings.ToLower(cmp.Or(string(phase), "new"))),
			describe)
	case c.f.SourceGone:
		c.add(LayerSource, object, Broken, "SourceEnded", fmt.Sprintf("the guest that was in %s is gone: its instance "+
			"vmi/%s has been deleted", c.f.Source, c.f.Source.SourceGuest()), describe)
	case len(podAddresses(pod)) == 0:
		c.add(LayerSource, object, Waiting, "SourceNoAddress", c.f.Source.String()+" has no address yet", describe)
	}
}

// nodeTrouble are the reasons of a report that say that nothing on the guest's node answers.
var nodeTrouble = []string{"NodeGone", "NodeFenced", "NodeLost", "NodeNotReady"}

// guestRuns reports whether the guest runs, and adds why it does not answer; r is the report of the VM.
func (c *connecting) guestRuns(r *Report) bool {
	if c.VMI == nil || c.VMI.Status.Phase != v1.Running {
		state, fix := Broken, "virtctl why "+c.Name+c.flag()
		switch r.Verdict {
		case Off:
			fix = "virtctl start " + c.Name + c.flag()
		case OK, Waiting:
			state = Waiting
		}
		c.add(LayerVMI, c.vmiObject(), state, "GuestNotRunning", "the guest does not run: "+r.Summary, fix)
		return false
	}
	for _, cause := range r.Causes {
		if cause.State != OK && slices.Contains(nodeTrouble, cause.Reason) {
			c.causes = append(c.causes, cause)
		}
	}
	if conditions.True(c.VMI.Status.Conditions, v1.VirtualMachineInstancePaused) {
		c.add(LayerQEMU, "domain/"+c.Name, Broken, "GuestPaused", "the guest is paused, and answers nothing",
			"virtctl unpause "+c.Name+c.flag())
	} else if not := c.notReady(); not != nil {
		c.add(LayerVMI, c.vmiObject(), OK, "GuestNotReady",
			"the guest is not ready: Services send it nothing, but connections to its own address pass: "+
				cmp.Or(not.Message, not.Reason), "virtctl why "+c.Name+c.flag())
	}
	return true
}

// podInterface returns the guest's interface on the pod network, and adds that it has none, or that its cable is
// pulled.
func (c *connecting) podInterface() *v1.Interface {
	spec := c.Spec()
	if spec == nil {
		return nil
	}
	devices := &spec.Domain.Devices
	if len(spec.Networks) == 0 && len(devices.Interfaces) == 0 {
		if auto := devices.AutoattachPodInterface; auto == nil || *auto {
			return v1.DefaultMasqueradeNetworkInterface() // as admission makes it
		}
	}
	var nic *v1.Interface
	for i := range spec.Networks {
		if network.LinkOf(spec.Networks[i]) != network.PodLink {
			continue
		}
		at := slices.IndexFunc(devices.Interfaces,
			func(n v1.Interface) bool {
				return n.Name == spec.Networks[i].Name && n.State != v1.InterfaceStateAbsent
			})
		if at >= 0 {
			nic = &devices.Interfaces[at]
		}
	}
	if nic == nil {
		message := "the guest is not on the pod network, on which pods reach each other"
		if others := c.secondary(); len(others) > 0 {
			message += "; it is on Multus' networks " + strings.Join(others, ", ")
		}
		most := Broken
		if c.f.Source.Pod == nil && len(c.secondary()) > 0 { // it may be on one of them
			most = Unknown
			message += ", and nobody knows whether " + c.f.Source.String() + " is on one of these"
		}
		c.limits(most, LayerNetwork, c.vmiObject(), "NoPodNetwork", message,
			"an interface with masquerade on a network with pod: {} in spec.template.spec of the VM")
		return nil
	}
	if c.isDown(nic.Name) {
		c.pulled(nic.Name)
	}
	return nic
}

// isDown reports whether the cable of one of the guest's interfaces is pulled.
func (c *connecting) isDown(name string) bool {
	if status := c.interfaceStatus(name); status != nil && status.LinkState != "" {
		return status.LinkState == string(v1.InterfaceStateLinkDown)
	}
	spec := c.Spec()
	return spec != nil && slices.ContainsFunc(spec.Domain.Devices.Interfaces, func(n v1.Interface) bool {
		return n.Name == name && n.State == v1.InterfaceStateLinkDown
	})
}

func (c *connecting) pulled(name string) {
	c.limits(Broken, LayerNetwork, c.vmiObject(), "LinkDown",
		fmt.Sprintf("the cable of the guest's interface %q is pulled: its state is down", name), c.linkUp(name))
}

// linkUp returns the command that plugs an interface's cable in.
func (c *connecting) linkUp(name string) string {
	if c.VM != nil && c.VM.Spec.Template != nil {
		at := slices.IndexFunc(c.VM.Spec.Template.Spec.Domain.Devices.Interfaces,
			func(n v1.Interface) bool { return n.Name == name })
		if at >= 0 {
			return fmt.Sprintf(`kubectl patch %s%s --type json -p '[{"op":"add","path":`+
				`"/spec/template/spec/domain/devices/interfaces/%d/state","value":"up"}]'`, c.vmObject(), c.flag(), at)
		}
	}
	return fmt.Sprintf("state: up for the interface %s in spec.template.spec.domain.devices.interfaces of the VM", name)
}

func (c *connecting) interfaceStatus(name string) *v1.VirtualMachineInstanceNetworkInterface {
	if c.VMI == nil {
		return nil
	}
	for i := range c.VMI.Status.Interfaces {
		if c.VMI.Status.Interfaces[i].Name == name {
			return &c.VMI.Status.Interfaces[i]
		}
	}
	return nil
}

// secondary returns the names of the guest's networks besides the pod's first one.
func (c *connecting) secondary() []string {
	spec := c.Spec()
	if spec == nil {
		return nil
	}
	var out []string
	for _, n := range spec.Networks {
		if network.LinkOf(n) != network.PodLink {
			out = append(out, n.Name)
		}
	}
	return out
}

// hasPod reports whether the guest's pod is known and has an address, and adds why not.
func (c *connecting) hasPod(pod *corev1.Pod) bool {
	switch {
	case pod != nil && len(podAddresses(pod)) > 0:
		return true
	case pod != nil:
		c.add(LayerPod, c.podObject(), Waiting, "PodNoAddress", "the guest's pod has no address yet",
			"kubectl describe "+c.podObject()+c.flag())
	case !c.readable("pods"):
		c.add(LayerPod, "pods", Unknown, "PodsUnreadable", "you may not read the pods of namespace "+c.Namespace+
			", and so not what holds for the guest's", c.right("pods", c.Namespace))
	default:
		c.add(LayerPod, c.podObject(), Waiting, "NoPod", "the guest's pod is not there", "virtctl why "+c.Name+c.flag())
	}
	return false
}

// right says which right helps.
func (c *connecting) right(resource, namespace string) string {
	return "ask an administrator for the right to read " + resource + " of namespace " + namespace +
		", as the ClusterRole view has it"
}

// find adds a path for each family that both ends have, and why there is none.
func (c *connecting) find(pod *corev1.Pod, nic *v1.Interface) {
	targets := c.taken(nic, podAddresses(pod))
	sources := c.f.Source.addresses()
	for _, to := range targets {
		known := slices.ContainsFunc(c.paths, func(p path) bool { return p.to.Is4() == to.Is4() })
		from := slices.IndexFunc(sources, func(a netip.Addr) bool { return a.Is4() == to.Is4() })
		if from >= 0 && !known {
			p := path{from: sources[from], to: to, open: c.asked, possible: c.asked}
			if c.isDown(nic.Name) {
				p.open, p.possible = nil, nil
			}
			c.paths = append(c.paths, p)
		}
	}
	if len(c.paths) == 0 && len(targets) > 0 && len(sources) > 0 {
		c.limits(Broken, LayerNetwork, c.vmiObject(), "NoCommonFamily",
			fmt.Sprintf("%s has %s alone, and the guest %s alone", c.f.Source, family(sources[0]), family(targets[0])),
			"connect from a pod that has an "+family(targets[0])+" address")
	}
}

// taken returns those of the pod's addresses that the guest answers at. Behind masquerade it answers at all; on a
// bridge its status says.
func (c *connecting) taken(nic *v1.Interface, addresses []netip.Addr) []netip.Addr {
	status := c.interfaceStatus(nic.Name)
	if status == nil || nic.Masquerade != nil {
		return addresses
	}
	var has []netip.Addr
	for _, text := range append(slices.Clone(status.IPs), status.IP) {
		if a, err := netip.ParseAddr(text); err == nil && !a.IsLinkLocalUnicast() && !slices.Contains(has, a.Unmap()) {
			has = append(has, a.Unmap())
		}
	}
	common := slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool { return !slices.Contains(has, a) })
	switch {
	case len(has) == 0:
		c.limits(Broken, LayerNetwork, c.vmiObject(), "NoGuestAddress",
			fmt.Sprintf("the guest's interface %q has no address", nic.Name),
			"virtctl describe "+c.Name+c.flag(), "DHCP in the guest, or the address of its pod")
	case len(common) == 0:
		c.limits(Broken, LayerNetwork, c.vmiObject(), "OtherAddress",
			fmt.Sprintf("the guest's interface %q has the address %s, and others look for it at its pod's, %s",
				nic.Name, list(has), list(addresses)), "DHCP in the guest, which gives it the pod's address")
	}
	return common
}

func list[T fmt.Stringer](all []T) string {
	words := make([]string, len(all))
	for i := range all {
		words[i] = all[i].String()
	}
	return strings.Join(words, ", ")
}

// listed narrows the paths to the ports that an interface with masquerade lists, and adds who has the others.
func (c *connecting) listed(pod *corev1.Pod, nic *v1.Interface) {
	if nic.Masquerade == nil || len(nic.Ports) == 0 {
		return
	}
	var in netpolicy.Ports
	for _, port := range nic.Ports {
		if corev1.Protocol(strings.ToUpper(cmp.Or(port.Protocol, "TCP"))) == c.f.Protocol {
			in = in.Union(netpolicy.One(port.Port))
		}
	}
	for i := range c.paths {
		c.paths[i].open, c.paths[i].possible = c.paths[i].open.Intersect(in), c.paths[i].possible.Intersect(in)
	}
	if in.Contains(c.asked) || len(c.paths) == 0 {
		return
	}
	field := "ports of the interface " + nic.Name + " in spec.template.spec.domain.devices.interfaces of the VM"
	fix := "leave out " + field
	if c.f.Port != 0 {
		fix = fmt.Sprintf("add {port: %d, protocol: %s} to %s, or leave them all out; the next start takes it",
			c.f.Port, c.f.Protocol, field)
		if container := portOf(pod, c.f.Port, c.f.Protocol); container != "" {
			c.limits(Broken, LayerNetwork, c.podObject(), "PortOfPod",
				fmt.Sprintf("container %s of the guest's pod has %s, and answers in place of the guest", container,
					c.ports()), fix)
			return
		}
	}
	message := fmt.Sprintf("the guest's interface %q lists ports, of %s these alone: %s", nic.Name, c.f.Protocol, in)
	c.limits(Broken, LayerNetwork, c.vmiObject(), "PortNotListed", message, fix)
}

// portOf returns the container beside the guest's that has a port, or "".
func portOf(pod *corev1.Pod, number int32, protocol corev1.Protocol) string {
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if container.Name == names.ContainerCompute {
			continue
		}
		for _, port := range container.Ports {
			if port.ContainerPort == number && cmp.Or(port.Protocol, corev1.ProtocolTCP) == protocol {
				return container.Name
			}
		}
	}
	return ""
}

// unlooked notes the guest's other networks where the source may be on one of them, and nobody says that it is.
func (c *connecting) unlooked() {
	others := c.secondary()
	pod := c.f.Source.Pod
	if len(others) == 0 ||
		pod != nil && (pod.Annotations[network.AnnotationNetworks] == "" || len(c.f.Shared(pod)) > 0) {
		return
	}
	c.notes = append(c.notes, "only the pod network was looked at, not "+strings.Join(others, ", ")+
		", where MultiNetworkPolicies may hold")
}
