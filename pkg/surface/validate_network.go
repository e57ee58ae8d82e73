package surface

import (
	"fmt"
	"net"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
)

// validateInterfaces checks interfaces and networks, and that they belong together by name.
func validateInterfaces(spec *v1.VirtualMachineInstanceSpec, root *field.Path) field.ErrorList {
	at := root.Child("domain", "devices", "interfaces")
	networks := map[string]*v1.Network{}
	errs := validateNetworks(spec.Networks, networks, root.Child("networks"))
	errs = append(errs, tooMany(len(spec.Domain.Devices.Interfaces), at)...)
	seen := map[string]bool{}
	macs := map[string]string{}
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
		errs = append(errs, validateBinding(nic, here)...)
		errs = append(errs, validateMAC(nic, macs, here.Child("macAddress"))...)
		errs = append(errs, validatePorts(nic, here.Child("ports"))...)
		if nic.Bridge != nil && network != nil && network.Pod != nil && network.Pod.VMNetworkCIDR != "" {
			errs = append(errs, field.Forbidden(root.Child("networks"), fmt.Sprintf(
				"vmNetworkCIDR of %q has no meaning with bridge, where the guest has the pod's address; remove it", nic.Name)))
		}
	}
	for i := range spec.Networks {
		if name := spec.Networks[i].Name; name != "" && !seen[name] {
			err := field.NotFound(root.Child("networks").Index(i).Child("name"), name)
			err.Detail = fmt.Sprintf("no interface is named %q; add it to domain.devices.interfaces or remove the network", name)
			errs = append(errs, err)
		}
	}
	return errs
}

func validateNetworks(networks []v1.Network, byName map[string]*v1.Network, at *field.Path) field.ErrorList {
	errs := tooMany(len(networks), at)
	pod := ""
	for i := range networks {
		network := &networks[i]
		here := at.Index(i)
		errs = append(errs, validateDeviceName(network.Name, here.Child("name"))...)
		if byName[network.Name] != nil && network.Name != "" {
			errs = append(errs, duplicate(here.Child("name"), network.Name, "network"))
		}
		byName[network.Name] = network
		if network.Pod == nil {
			if network.Multus == nil { // else it is reported as not supported
				errs = append(errs, field.Required(here.Child("pod"), "is not set; the pod network is the one kind there is"))
			}
			continue
		}
		if pod != "" {
			errs = append(errs, field.Forbidden(here.Child("pod"), fmt.Sprintf("network %q is the pod network already; a guest has it once", pod)))
		}
		pod = network.Name
		if cidr := network.Pod.VMNetworkCIDR; cidr != "" {
			prefix, err := netip.ParsePrefix(cidr)
			if err != nil || !prefix.Addr().Is4() || prefix.Bits() > 30 || prefix.Bits() < 8 {
				errs = append(errs, field.Invalid(here.Child("pod", "vmNetworkCIDR"), cidr,
					fmt.Sprintf("%q is not an IPv4 network from /8 to /30, such as 10.0.2.0/24", cidr)))
			}
		}
	}
	return errs
}

func validateBinding(nic *v1.Interface, at *field.Path) field.ErrorList {
	if nic.Masquerade != nil && nic.Bridge != nil {
		return field.ErrorList{field.Forbidden(at, "has both masquerade and bridge; keep one")}
	}
	return nil
}

func validateMAC(nic *v1.Interface, macs map[string]string, at *field.Path) field.ErrorList {
	if nic.MacAddress == "" {
		return nil
	}
	mac, err := net.ParseMAC(nic.MacAddress)
	if err != nil || len(mac) != 6 {
		return field.ErrorList{field.Invalid(at, nic.MacAddress, fmt.Sprintf("%q is not an Ethernet address such as 02:12:34:56:78:9a", nic.MacAddress))}
	}
	if mac[0]&1 != 0 || mac.String() == "00:00:00:00:00:00" {
		return field.ErrorList{field.Invalid(at, nic.MacAddress, fmt.Sprintf("%q is not the address of one interface; the second digit must be even", nic.MacAddress))}
	}
	if other, ok := macs[mac.String()]; ok {
		err := field.Duplicate(at, nic.MacAddress)
		err.Detail = fmt.Sprintf("%q is the address of interface %q too; give each its own", nic.MacAddress, other)
		return field.ErrorList{err}
	}
	macs[mac.String()] = nic.Name
	return nil
}

func validatePorts(nic *v1.Interface, at *field.Path) field.ErrorList {
	if len(nic.Ports) > 0 && nic.Bridge != nil {
		return field.ErrorList{field.Forbidden(at, "have no meaning with bridge, where the guest has the pod's address; remove them")}
	}
	var errs field.ErrorList
	numbers, portNames := map[string]bool{}, map[string]bool{}
	for i, port := range nic.Ports {
		here := at.Index(i)
		if port.Port < 1 || port.Port > 65535 {
			errs = append(errs, field.Invalid(here.Child("port"), port.Port, fmt.Sprintf("%d is not a port; use 1 to 65535", port.Port)))
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
			errs = append(errs, field.Invalid(here.Child("name"), port.Name, fmt.Sprintf("%q is not a port name: %s", port.Name, problems[0])))
		}
		if portNames[port.Name] {
			errs = append(errs, duplicate(here.Child("name"), port.Name, "port"))
		}
		portNames[port.Name] = true
	}
	return errs
}
