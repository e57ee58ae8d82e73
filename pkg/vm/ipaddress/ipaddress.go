// Package ipaddress says which IP addresses an interface of a guest keeps on a network of Multus, by which way, and
// which VM an address belongs to.
//
// A VM's author may wish for addresses, in the annotation Wish of the VM's template. Otherwise the network's IPAM
// plugin chooses them at the first start. virt-controller records them in the VM's annotation Annotation, and asks for
// them at the next start, where the plugin takes such a request (Keep). The VMI gets the record from its VM. The
// package is pure; virt-api, virt-controller, virt-handler and virtctl ask it. What the plugins do is that of
// containernetworking/plugins 1.1, and of OVN-Kubernetes 1.0.
package ipaddress

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/addresses"
	"github.com/virtkit/virtkit/pkg/vm/macaddress"
)

const (
	// Annotation is on a VM and its VMI: the addresses that networks of Multus have given its interfaces; a Record as
	// JSON.
	Annotation = "virtkit.io/ip-addresses"
	// Wish is on a VM's template and its VMI: the addresses that its interfaces are to have, a JSON object of lists by
	// the interface's name. It is the annotation of KubeVirt's ipam-controller.
	Wish = "network.kubevirt.io/addresses"
	// PodAnnotation is on a launcher pod: the interfaces whose addresses are to be recorded, with commas between.
	PodAnnotation = "virtkit.io/ip-addresses-of"
)

// Address is an IP address, with the length of its network's prefix where that is known.
type Address struct {
	netip.Addr
	// Bits is the length, -1 for one that is not known.
	Bits int
}

// String returns the address as Parse reads it.
func (a Address) String() string {
	if a.Bits < 0 {
		return a.Addr.String()
	}
	return a.Addr.String() + "/" + strconv.Itoa(a.Bits)
}

// Prefix returns the address with the length of its network's prefix; invalid where that is not known.
func (a Address) Prefix() netip.Prefix { return netip.PrefixFrom(a.Addr, a.Bits) }

// Parse reads an address that a guest may have, with or without the length of a prefix.
func Parse(text string) (Address, error) {
	host, _, with := strings.Cut(text, "/")
	out := Address{Bits: -1}
	var err error
	if out.Addr, err = netip.ParseAddr(host); err != nil || out.Zone() != "" || out.Is4In6() {
		return Address{}, fmt.Errorf("%q is not an IP address such as 192.0.2.7 or 2001:db8::7/64", text)
	}
	if with {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return Address{}, fmt.Errorf("%q has no length of a prefix such as 192.0.2.7/24 or 2001:db8::7/64", text)
		}
		out.Bits = prefix.Bits()
	}
	if !out.IsGlobalUnicast() {
		return Address{}, fmt.Errorf("%q is not the address of one host that others reach; give another", text)
	}
	if out.Bits >= 0 && out.Bits < out.BitLen()-1 {
		switch network := out.Prefix().Masked(); {
		case network.Addr() == out.Addr:
			return Address{}, fmt.Errorf("%q is the address of the network %s itself; give one in it", text, network)
		case out.Is4() && last(network) == out.Addr:
			return Address{}, fmt.Errorf("%q is the broadcast address of the network %s; give another in it", text,
				network)
		}
	}
	return out, nil
}

// last returns the highest address of a network.
func last(network netip.Prefix) netip.Addr {
	bytes := network.Masked().Addr().AsSlice()
	for bit := network.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 1 << (7 - bit%8)
	}
	out, _ := netip.AddrFromSlice(bytes)
	return out
}

// maxAddresses is how many addresses one interface has at most.
const maxAddresses = 16

func parseAll(texts []string) ([]Address, error) {
	if len(texts) > maxAddresses {
		return nil, fmt.Errorf("there are %d addresses, and %d are the most of an interface; remove some", len(texts),
			maxAddresses)
	}
	var out []Address
	for _, text := range texts {
		a, err := Parse(text)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(out, func(b Address) bool { return a.Addr == b.Addr }) {
			return nil, fmt.Errorf("%s is named twice; remove one", a.Addr)
		}
		out = append(out, a)
	}
	return out, nil
}

// Given are the addresses that a network has given an interface.
type Given struct {
	// Network is NAMESPACE/NAME of the NetworkAttachmentDefinition; on another one the addresses say nothing.
	Network   string   `json:"network"`
	Addresses []string `json:"addresses"`
}

const (
	example = `{"vm":"NAMESPACE/NAME","interfaces":` +
		`{"INTERFACE":{"network":"NAMESPACE/NAME","addresses":["192.0.2.7"]}}}`
	exampleWish = `{"INTERFACE":["192.0.2.7/24"]}`
)

// Record is what Annotation holds.
type Record = addresses.Record[Given]

var kind = addresses.Kind[Given]{Annotation: Annotation, Example: example, Check: Given.check}

func (g Given) check() error {
	_, err := parseAll(g.Addresses)
	return err
}

// Encode returns the value of Annotation for a VM.
func Encode(namespace, name string, given map[string]Given) (string, error) {
	return kind.Encode(namespace, name, given)
}

// Decode reads a value of Annotation. An error says what is wrong with it.
func Decode(text string) (Record, error) { return kind.Decode(text) }

// Recorded returns what a VM's or VMI's annotation has for it, by the interface's name. A record of another VM, and one
// that cannot be read, which admission refuses, count as none.
func Recorded(object metav1.Object) map[string]Given { return kind.Recorded(object) }

// Move does for IP addresses what macaddress.Move does.
func Move(vm *v1.VirtualMachine, from string) error { return kind.Move(vm, from) }

// DecodeWish reads a value of Wish: the addresses by the interface's name. An error says what is wrong with it.
func DecodeWish(text string) (map[string][]Address, error) {
	if text == "" {
		return nil, nil
	}
	var lists map[string][]string
	if err := json.Unmarshal([]byte(text), &lists); err != nil {
		return nil, fmt.Errorf("is not %s: %w", exampleWish, err)
	}
	out := map[string][]Address{}
	for name, texts := range lists {
		list, err := parseAll(texts)
		if err != nil {
			return nil, fmt.Errorf("interface %s: %w", name, err)
		}
		if len(list) > 0 {
			out[name] = list
		}
	}
	return out, nil
}

// EncodeWish returns the value of Wish for addresses by the interface's name.
func EncodeWish(wish map[string][]Address) (string, error) {
	lists := map[string][]string{}
	for name, list := range wish {
		for _, a := range list {
			lists[name] = append(lists[name], a.String())
		}
	}
	data, err := json.Marshal(lists)
	if err != nil {
		return "", fmt.Errorf("encode annotation %s: %w", Wish, err)
	}
	return string(data), nil
}

// CheckWish returns why the annotation Wish, which is key, is refused with a value for a guest of spec in a namespace.
func CheckWish(namespace, key, value string, spec *v1.VirtualMachineInstanceSpec) error {
	wish, err := DecodeWish(value)
	if err != nil {
		return err
	}
	interfaces, networks := macaddress.Interfaces(spec)
	had := map[[2]string]string{} // the interface, by its network and address
	for _, name := range slices.Sorted(maps.Keys(wish)) {
		for _, a := range wish[name] {
			key := [2]string{macaddress.Network(namespace, networks[name]), a.Addr.String()}
			if other, twice := had[key]; twice {
				return fmt.Errorf("%s is wished for interface %q and for interface %q on one network; give each its "+
					"own", a.Addr, other, name)
			}
			had[key] = name
		}
		if !slices.ContainsFunc(interfaces, func(nic v1.Interface) bool { return nic.Name == name }) {
			return fmt.Errorf("no interface is named %q; name one that there is, or remove it from the annotation %s",
				name, key)
		}
	}
	return nil
}

// Wished returns the addresses that an interface of a VMI is wished to have.
func Wished(annotations map[string]string, name string) []Address {
	wish, err := DecodeWish(annotations[Wish])
	if err != nil {
		return nil // admission refuses it
	}
	return wish[name]
}

// OfInterface returns the addresses that an interface of a VMI is to have on a network: those that are wished for, and
// the recorded ones of a family for which there is no wish.
func OfInterface(vmi *v1.VirtualMachineInstance, name, network string) []Address {
	return merge(Wished(vmi.Annotations, name), Recorded(vmi)[name], network)
}

func merge(wished []Address, given Given, network string) []Address {
	out := slices.Clone(wished)
	if given.Network != network {
		return out
	}
	recorded, err := parseAll(given.Addresses)
	if err != nil {
		return out
	}
	for _, a := range recorded {
		if !slices.ContainsFunc(wished, func(b Address) bool { return a.Is4() == b.Is4() }) {
			out = append(out, a)
		}
	}
	return out
}
