package surface

import (
	"fmt"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/macaddress"
)

// validateInterfaces checks interfaces and networks, and that they belong together by name.
func validateInterfaces(spec *v1.VirtualMachineInstanceSpec, root *field.Path) field.ErrorList {
	at := root.Child("domain", "devices", "interfaces")
	networks := map[string]*v1.Network{}
	errs := validateNetworks(spec.Networks, networks, root.Child("networks"))
	errs = append(errs, tooMany(len(spec.Domain.Devices.Interfaces), at)...)
	seen := map[string]bool{}
	macs, portNames := map[string]string{}, map[string]bool{}
	for i := range spec.Domain.Devices.Interfaces {
		nic := &spec.Domain.Devices.Interfaces[i]
		here := at.Index(i)
		network := networks[nic.Name]
		switch { // the name's form is checked with the network's
		case nic.Name == "":
			errs = append(errs, field.Required(here.Child("name"), "is not set"))
		case seen[nic.Name]:
			errs = append(errs, duplicate(here.Child("name"), nic.Name, "interface"))
		case network == nil:
			err := field.NotFound(here.Child("name"), nic.Name)
			err.Detail = fmt.Sprintf("no network is named %q; add it to networks", nic.Name)
			errs = append(errs, err)
		}
		seen[nic.Name] = true
		errs = append(errs, validateBinding(nic, network, here)...)
		errs = append(errs, validateMAC(nic, macs, here.Child("macAddress"))...)
		errs = append(errs, validatePorts(nic, portNames, here.Child("ports"))...)
		errs = append(errs, validateState(nic, network, here.Child("state"))...)
		errs = append(errs, validateDHCP(nic.DHCPOptions, here.Child("dhcpOptions"))...)
	}
	for i := range spec.Networks {
		if name := spec.Networks[i].Name; name != "" && !seen[name] {
			err := field.NotFound(root.Child("networks").Index(i).Child("name"), name)
			err.Detail = fmt.Sprintf("no interface is named %q; add it to domain.devices.interfaces or remove the "+
				"network", name)
			errs = append(errs, err)
		}
	}
	return errs
}

func validateNetworks(networks []v1.Network, byName map[string]*v1.Network, at *field.Path) field.ErrorList {
	errs := tooMany(len(networks), at)
	first := "" // what is behind the pod's first link
	for i := range networks {
		network := &networks[i]
		here := at.Index(i)
		errs = append(errs, validateDeviceName(network.Name, here.Child("name"))...)
		if byName[network.Name] != nil && network.Name != "" {
			errs = append(errs, duplicate(here.Child("name"), network.Name, "network"))
		}
		byName[network.Name] = network
		switch {
		case network.Pod != nil && network.Multus != nil:
			errs = append(errs, field.Forbidden(here, "has both pod and multus; keep one"))
			continue
		case network.Pod == nil && network.Multus == nil:
			errs = append(errs, field.Required(here, "says not which network it is; set pod: {} or multus.networkName"))
			continue
		case network.Multus != nil:
			errs = append(errs, validateDefinition(network.Multus.NetworkName, here.Child("multus", "networkName"))...)
		}
		if network.Pod != nil || network.Multus.Default {
			kind := here.Child("pod")
			if network.Multus != nil {
				kind = here.Child("multus", "default")
			}
			if first != "" {
				errs = append(errs, field.Forbidden(kind,
					fmt.Sprintf("network %q is the pod network already, or in its place; a guest has one", first)))
			}
			first = network.Name
		}
		if network.Pod != nil {
			errs = append(errs, validateGuestNetwork(network.Pod.VMNetworkCIDR, here.Child("pod", "vmNetworkCIDR"))...)
			errs = append(errs,
				validateGuestNetwork6(network.Pod.VMIPv6NetworkCIDR, here.Child("pod", "vmIPv6NetworkCIDR"))...)
		}
	}
	return errs
}

func validateGuestNetwork(cidr string, at *field.Path) field.ErrorList {
	if cidr == "" {
		return nil
	}
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil || !prefix.Addr().Is4() || prefix.Bits() > 30 || prefix.Bits() < 8 {
		return field.ErrorList{
			field.Invalid(at, cidr, fmt.Sprintf("%q is not an IPv4 network from /8 to /30, such as 10.0.2.0/24", cidr)),
		}
	}
	return nil
}

func validateGuestNetwork6(cidr string, at *field.Path) field.ErrorList {
	if cidr == "" {
		return nil
	}
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil || !prefix.Addr().Is6() || prefix.Addr().Is4In6() || prefix.Bits() > 126 || prefix.Bits() < 8 ||
		!prefix.Masked().Addr().IsGlobalUnicast() {
		return field.ErrorList{field.Invalid(at, cidr,
			fmt.Sprintf("%q is not an IPv6 network from /8 to /126, such as fd10:0:2::/120", cidr))}
	}
	return nil
}

// validateDefinition checks [NAMESPACE/]NAME of a NetworkAttachmentDefinition.
func validateDefinition(text string, at *field.Path) field.ErrorList {
	if text == "" {
		return field.ErrorList{
			field.Required(at, "is not set; it names a NetworkAttachmentDefinition, as NAME or NAMESPACE/NAME"),
		}
	}
	namespace, name, ok := strings.Cut(text, "/")
	if !ok {
		namespace, name = "default", text
	}
	if problems := append(validation.IsDNS1123Label(namespace), validation.IsDNS1123Subdomain(name)...); len(problems) >
		0 {
		return field.ErrorList{field.Invalid(at, text,
			fmt.Sprintf("%q is not NAME or NAMESPACE/NAME of a NetworkAttachmentDefinition: %s", text, problems[0]))}
	}
	return nil
}

func validateBinding(nic *v1.Interface, network *v1.Network, at *field.Path) field.ErrorList {
	switch {
	case nic.Binding != nil && nic.InterfaceBindingMethod != (v1.InterfaceBindingMethod{}):
		return field.ErrorList{field.Forbidden(at.Child("binding"), "is beside masquerade, bridge or sriov; keep one")}
	case nic.Binding != nil && nic.Binding.Name == "":
		return field.ErrorList{
			field.Required(at.Child("binding", "name"), "is not set; it names a network binding plugin"),
		}
	case nic.SRIOV != nil && (nic.Masquerade != nil || nic.Bridge != nil):
		return field.ErrorList{field.Forbidden(at.Child("sriov"), "is beside masquerade or bridge; keep one")}
	case nic.SRIOV != nil:
		return validateSRIOV(nic, network, at)
	case nic.Masquerade != nil && nic.Bridge != nil:
		return field.ErrorList{field.Forbidden(at, "has both masquerade and bridge; keep one")}
	case nic.Masquerade != nil && network != nil && network.Multus != nil:
		return field.ErrorList{field.Forbidden(at.Child("masquerade"),
			fmt.Sprintf("is for the pod network, and %q is a network of Multus'; use bridge: {}", nic.Name))}
	}
	return nil
}

func validateMAC(nic *v1.Interface, macs map[string]string, at *field.Path) field.ErrorList {
	if nic.MacAddress == "" {
		return nil
	}
	if err := macaddress.Check(nic.MacAddress); err != nil {
		return field.ErrorList{field.Invalid(at, nic.MacAddress, err.Error())}
	}
	mac := macaddress.Normal(nic.MacAddress)
	if other, ok := macs[mac]; ok {
		err := field.Duplicate(at, nic.MacAddress)
		err.Detail = fmt.Sprintf("%q is the address of interface %q too; give each its own", nic.MacAddress, other)
		return field.ErrorList{err}
	}
	macs[mac] = nic.Name
	return nil
}

// validatePorts checks the ports of an interface. names are those of the guest's other interfaces: all of them are
// ports of one container.
func validatePorts(nic *v1.Interface, names map[string]bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	numbers := map[string]bool{}
	for i, port := range nic.Ports {
		here := at.Index(i)
		if port.Port < 1 || port.Port > 65535 {
			errs = append(errs, field.Invalid(here.Child("port"), port.Port,
				fmt.Sprintf("%d is not a port; use 1 to 65535", port.Port)))
		}
		key := fmt.Sprintf("%s %d", port.Protocol, port.Port)
		if numbers[key] {
			errs = append(errs, field.Invalid(here.Child("port"), port.Port, key+" is listed twice; remove one"))
		}
		numbers[key] = true
		if port.Name == "" {
			continue
		}
		if problems := validation.IsValidPortName(port.Name); len(problems) > 0 {
			errs = append(errs, field.Invalid(here.Child("name"), port.Name,
				fmt.Sprintf("%q is not a port name: %s", port.Name, problems[0])))
		}
		if names[port.Name] {
			errs = append(errs, duplicate(here.Child("name"), port.Name, "port"))
		}
		names[port.Name] = true
	}
	return errs
}

// networkWarnings returns what interfaces and networks ask of masquerade alone, and have with another binding, as
// KubeVirt admits it.
func networkWarnings(spec *v1.VirtualMachineInstanceSpec, path string) (out []string) {
	bindings := map[string]string{}
	for i := range spec.Domain.Devices.Interfaces {
		nic := &spec.Domain.Devices.Interfaces[i]
		binding := otherBinding(nic)
		bindings[nic.Name] = binding
		if binding != "" && len(nic.Ports) > 0 {
			out = append(out, fmt.Sprintf("%sspec.domain.devices.interfaces[%d].ports limits nothing with %s, where "+
				"everything gets to the guest; probes and policies may use the ports' names", path, i, binding))
		}
	}
	for i := range spec.Networks {
		n := &spec.Networks[i]
		if bindings[n.Name] == "" || n.Pod == nil {
			continue
		}
		for _, f := range []struct{ name, value string }{
			{"vmNetworkCIDR", n.Pod.VMNetworkCIDR}, {"vmIPv6NetworkCIDR", n.Pod.VMIPv6NetworkCIDR},
		} {
			if f.value != "" {
				out = append(out, fmt.Sprintf("%sspec.networks[%d].pod.%s has no effect with %s, where the guest is "+
					"on the pod's network itself", path, i, f.name, bindings[n.Name]))
			}
		}
	}
	return out
}

// otherBinding returns how an interface is bound that has no masquerade, or "".
func otherBinding(nic *v1.Interface) string {
	switch {
	case nic.Binding != nil:
		return "a network binding plugin"
	case nic.Bridge != nil:
		return "bridge"
	case nic.SRIOV != nil:
		return "sriov"
	}
	return ""
}
