package create

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/ipaddress"
)

// Network is an interface of the guest on a network of Multus.
type Network struct {
	// Name is the interface's.
	Name string
	// Definition is [NAMESPACE/]NAME of the NetworkAttachmentDefinition.
	Definition string
}

// ParseNetworks reads interfaces, NAME=[NAMESPACE/]DEFINITION each, and the addresses of some of them,
// NAME=ADDRESS[,ADDRESS] each. Errors are FieldErrors.
func ParseNetworks(networks, ips []string) ([]Network, map[string][]string, error) {
	var out []Network
	for _, text := range networks {
		name, definition, ok := strings.Cut(text, "=")
		if !ok || name == "" || definition == "" {
			return nil, nil, invalid("network", "%q is not NAME=[NAMESPACE/]DEFINITION, such as red=red-net", text)
		}
		out = append(out, Network{Name: name, Definition: definition})
	}
	var addresses map[string][]string
	for _, text := range ips {
		name, list, ok := strings.Cut(text, "=")
		of := strings.Split(list, ",")
		if !ok || name == "" || slices.Contains(of, "") {
			return nil, nil, invalid("ip", "%q is not NAME=ADDRESS[,ADDRESS], such as red=192.0.2.7", text)
		}
		if addresses == nil {
			addresses = map[string][]string{}
		}
		addresses[name] = append(addresses[name], of...)
	}
	return out, addresses, nil
}

// addNetworks lists further interfaces, after the one on the pod network that a guest without any is given.
func addNetworks(spec *v1.VirtualMachineInstanceSpec, networks []Network) error {
	devices := &spec.Domain.Devices
	if len(networks) > 0 && len(devices.Interfaces) == 0 {
		devices.Interfaces = []v1.Interface{*v1.DefaultMasqueradeNetworkInterface()}
		spec.Networks = []v1.Network{*v1.DefaultPodNetwork()}
	}
	for _, n := range networks {
		if len(validation.IsDNS1123Label(n.Name)) > 0 {
			return invalid("network", "interface %q %s", n.Name, label)
		}
		if slices.ContainsFunc(devices.Interfaces, func(nic v1.Interface) bool { return nic.Name == n.Name }) {
			return invalid("network", "there are two interfaces named %s; name one of them otherwise", n.Name)
		}
		parts := strings.Split(n.Definition, "/")
		if len(parts) > 2 || slices.ContainsFunc(parts, func(part string) bool {
			return len(validation.IsDNS1123Subdomain(part)) > 0
		}) {
			return invalid("network", "%q is not [NAMESPACE/]NAME of a NetworkAttachmentDefinition", n.Definition)
		}
		devices.Interfaces = append(devices.Interfaces, v1.Interface{
			Name: n.Name, InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}},
		})
		spec.Networks = append(spec.Networks, v1.Network{
			Name:          n.Name,
			NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: n.Definition}},
		})
	}
	return nil
}

// addIPs wishes for addresses of interfaces.
func addIPs(namespace string, template *v1.VirtualMachineInstanceTemplateSpec, ips map[string][]string) error {
	if len(ips) == 0 {
		return nil
	}
	wish := map[string][]ipaddress.Address{}
	for _, name := range slices.Sorted(maps.Keys(ips)) {
		i := slices.IndexFunc(template.Spec.Networks, func(n v1.Network) bool { return n.Name == name })
		switch {
		case i < 0 && name != v1.DefaultPodNetwork().Name:
			return invalid("ip", "no interface is named %q; --network %[1]s=DEFINITION adds one", name)
		case i < 0 || template.Spec.Networks[i].Multus == nil:
			return invalid("ip", "the pod network gives each pod an address of its own, and takes no wish for one; "+
				"--network NAME=DEFINITION adds an interface on a network that may")
		}
		for _, text := range ips[name] {
			a, err := ipaddress.Parse(text)
			if err != nil {
				return invalid("ip", "%v", err)
			}
			wish[name] = append(wish[name], a)
		}
	}
	text, err := ipaddress.EncodeWish(wish)
	if err != nil {
		return err
	}
	if err := ipaddress.CheckWish(namespace, ipaddress.Wish, text, &template.Spec); err != nil {
		return invalid("ip", "%v", err)
	}
	metav1.SetMetaDataAnnotation(&template.ObjectMeta, ipaddress.Wish, text)
	return nil
}
