package network

import (
	"fmt"
	"strings"

	v1 "kubevirt.io/api/core/v1"
)

// PlugObstacle returns why a running guest cannot be given an interface on a network, or "" when it can. It is
// KubeVirt's rule: the pod has its first link for ever, and only a bridge needs nothing else of the pod than another
// link.
func PlugObstacle(nic *v1.Interface, n *v1.Network) string {
	switch {
	case n == nil:
		return "no network has its name"
	case n.Multus == nil || n.Multus.Default:
		return "it is on the pod network"
	case nic.Bridge == nil && (nic.InterfaceBindingMethod != (v1.InterfaceBindingMethod{}) || nic.Binding != nil):
		return "only interfaces with bridge: {} can be plugged in while the guest runs"
	}
	return ""
}

// Plugged returns an interface without PlugObstacle as admission would have made it, had it been there from the start.
func Plugged(nic *v1.Interface) v1.Interface {
	out := *nic.DeepCopy()
	if out.Bridge == nil {
		out.Bridge = &v1.InterfaceBridge{}
	}
	if out.Model == "" {
		out.Model = v1.VirtIO
	}
	return out
}

// Connected reports whether a pod was connected by Multus to a network of its VMI's, and as the VMI's interface says
// now.
func Connected(annotations map[string]string, namespace string, nic *v1.Interface, n *v1.Network) bool {
	if n.Multus == nil || n.Multus.Default {
		return true // by the CNI plugin of its first link
	}
	namespace, name := definition(namespace, n.Multus.NetworkName)
	for _, s := range selectionsOf(annotations) {
		if s.Name == name && s.Namespace == namespace && s.Interface == LinkOf(*n) {
			return nic.MacAddress == "" || strings.EqualFold(s.MAC, nic.MacAddress)
		}
	}
	return false
}

// Lacking returns the interfaces that a VMI has and its guest, which runs, has not. Those of here can be plugged in,
// since the guest's pod is connected to their networks; those of elsewhere need another pod, to which the guest moves.
// annotations are the pod's, and has says which interfaces the guest has.
func Lacking(
	vmi *v1.VirtualMachineInstance, plan *Plan, annotations map[string]string, has func(name string) bool,
) (here, elsewhere []string) {
	if plan == nil {
		return nil, nil
	}
	planned := map[string]bool{}
	for i := range plan.Interfaces {
		planned[plan.Interfaces[i].Name] = true
	}
	networks := byName(vmi)
	for i := range vmi.Spec.Domain.Devices.Interfaces {
		nic := &vmi.Spec.Domain.Devices.Interfaces[i]
		n := networks[nic.Name]
		switch {
		case n == nil || nic.SRIOV != nil || nic.State == v1.InterfaceStateAbsent || has(nic.Name):
		case planned[nic.Name] && Connected(annotations, vmi.Namespace, nic, n):
			here = append(here, nic.Name)
		case PlugObstacle(nic, n) == "":
			elsewhere = append(elsewhere, nic.Name)
		}
	}
	return here, elsewhere
}

// Moved returns the interfaces that a guest has, and whose networks name other NetworkAttachmentDefinitions than those
// that its pod was connected to: another pod connects them to these. annotations are the pod's, and has says which
// interfaces the guest has.
func Moved(
	vmi *v1.VirtualMachineInstance, annotations map[string]string, has func(name string) bool,
) (moved []string) {
	connected := DefinitionsOf(annotations)
	networks := byName(vmi)
	for i := range vmi.Spec.Domain.Devices.Interfaces {
		nic := &vmi.Spec.Domain.Devices.Interfaces[i]
		n := networks[nic.Name]
		if n == nil || nic.State == v1.InterfaceStateAbsent || !has(nic.Name) || PlugObstacle(nic, n) != "" {
			continue
		}
		if is := connected[LinkOf(*n)]; is != "" && is != Definition(vmi.Namespace, n) {
			moved = append(moved, nic.Name)
		}
	}
	return moved
}

// Connected notes in a plan of an earlier version, which does not say so, which networks its pod asked for. The plan
// may be nil.
func (p *Plan) Connected(annotations map[string]string) {
	if p == nil {
		return
	}
	asked := DefinitionsOf(annotations)
	for i := range p.Interfaces {
		if nic := &p.Interfaces[i]; nic.Network == "" && nic.PodLink != PodLink {
			nic.Network = asked[nic.PodLink]
		}
	}
}

// CheckConnected refuses a plan whose VMI names other networks than its pod asked for: what holds on these would be
// taken for what holds on those.
func (p *Plan) CheckConnected(annotations map[string]string) error {
	asked := DefinitionsOf(annotations)
	for i := range p.Interfaces {
		nic := &p.Interfaces[i]
		there := asked[nic.PodLink]
		if nic.PodLink != PodLink && there != "" && nic.Network != "" && there != nic.Network {
			return fmt.Errorf("interface %q: the pod is connected to network %s, and the VMI names %s since; another "+
				"pod connects it", nic.Name, there, nic.Network)
		}
	}
	return nil
}

// DefinitionsOf returns the NetworkAttachmentDefinitions, NAMESPACE/NAME, that a pod has asked Multus for, by link.
func DefinitionsOf(annotations map[string]string) map[string]string {
	out := map[string]string{}
	for _, s := range selectionsOf(annotations) {
		out[s.Interface] = s.Namespace + "/" + s.Name
	}
	return out
}

func byName(vmi *v1.VirtualMachineInstance) map[string]*v1.Network {
	networks := map[string]*v1.Network{}
	for i := range vmi.Spec.Networks {
		networks[vmi.Spec.Networks[i].Name] = &vmi.Spec.Networks[i]
	}
	return networks
}

// comes reports whether an interface was added to a VMI while its guest runs, which has not got it yet: a pod that was
// made before need not be connected to its network.
func comes(vmi *v1.VirtualMachineInstance, nic *v1.Interface, n *v1.Network) bool {
	if vmi.Status.Phase != v1.Running || PlugObstacle(nic, n) != "" {
		return false
	}
	for _, s := range vmi.Status.Interfaces {
		if s.Name == nic.Name {
			return false
		}
	}
	return true
}
