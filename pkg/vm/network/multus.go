package network

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/ipaddress"
	"github.com/virtkit/virtkit/pkg/vm/macaddress"
	"github.com/virtkit/virtkit/pkg/vm/reserved"
)

// What Multus and the components agree on by annotations of a pod: the de-facto standard of the Network Plumbing
// Working Group, and Multus' own way to replace the pod network.
const (
	// AnnotationNetworks asks for networks besides the pod's own: JSON, a list of selections.
	AnnotationNetworks = "k8s.v1.cni.cncf.io/networks"
	// AnnotationDefaultNetwork asks for another network in place of the cluster's: NAMESPACE/NAME.
	AnnotationDefaultNetwork = "v1.multus-cni.io/default-network"
	// AnnotationStatus has the networks that Multus attached: JSON, a list of Attachment.
	AnnotationStatus = "k8s.v1.cni.cncf.io/network-status"
)

// AnnotationPolicies is the annotation of a VMI with what holds for its guest on networks of Multus (package
// multipolicy). virt-controller alone writes it: admission refuses it to everybody else, as it does the label that says
// on which node the guest is.
const AnnotationPolicies = reserved.NetworkPolicies

// MaxPolicies bounds its text, bytes. The API server takes 256 KiB of annotations together; admission keeps this much
// free of others.
const MaxPolicies = 96 << 10

// Kept returns the annotations of a pod that say what it was connected to: asked for, and got.
func Kept(annotations map[string]string) map[string]string {
	var out map[string]string
	for _, name := range []string{AnnotationNetworks, AnnotationStatus} {
		text, ok := annotations[name]
		if !ok {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[name] = text
	}
	return out
}

// PodLink is the link of every pod on its first network, as every CNI runtime names it.
const PodLink = "eth0"

// nameHash is the length of a network's hash that leaves room for the kinds of links in IFNAMSIZ.
const nameHash = 11

// LinkOf names a network's link in the pod. Networks besides the first are named by their name's hash, so that
// another order, or one network more, renames none; KubeVirt's scheme.
func LinkOf(n v1.Network) string {
	if primary(n) {
		return PodLink
	}
	return "pod" + hash(n.Name)
}

func primary(n v1.Network) bool { return n.Multus == nil || n.Multus.Default }

func hash(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])[:nameHash]
}

// selection is one network that a pod asks for.
type selection struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	MAC       string `json:"mac,omitempty"`
	Interface string `json:"interface,omitempty"`
	// IPs are the addresses that are asked for, of plugins that declare the capability.
	IPs []string `json:"ips,omitempty"`
	// Arguments are handed to the CNI plugin.
	Arguments map[string]any `json:"cni-args,omitempty"`
}

// address asks a network for addresses, by the way that its plugin takes.
func (s *selection) address(way ipaddress.Way, ips []string) {
	switch {
	case len(ips) == 0:
	case way == ipaddress.ByArgument:
		s.Arguments = map[string]any{"ips": ips}
	default:
		s.IPs = ips
	}
}

// Annotations returns the annotations by which a VMI's pod asks Multus for its networks; none where the pod network is
// enough. keepings say by the network's name how it keeps addresses. The pod of a VMI whose guest has a node already is
// the target of a migration.
func Annotations(
	vmi *v1.VirtualMachineInstance, plugins Plugins, keepings map[string]ipaddress.Keeping,
) map[string]string {
	target := vmi.Status.NodeName != ""
	macs, absent := map[string]string{}, map[string]bool{}
	for _, nic := range vmi.Spec.Domain.Devices.Interfaces {
		// The guest takes its address along when it migrates, and its network may let no other through.
		macs[nic.Name] = cmp.Or(nic.MacAddress, macaddress.Running(vmi, nic.Name), macaddress.OfInterface(vmi, &nic))
		absent[nic.Name] = nic.State == v1.InterfaceStateAbsent
	}
	out := map[string]string{}
	var wanted []selection
	var kept []string
	for _, n := range vmi.Spec.Networks {
		if n.Multus == nil || absent[n.Name] {
			continue
		}
		namespace, name := definition(vmi.Namespace, n.Multus.NetworkName)
		if n.Multus.Default {
			out[AnnotationDefaultNetwork] = namespace + "/" + name
			continue
		}
		s := selection{Name: name, Namespace: namespace, MAC: macs[n.Name], Interface: LinkOf(n)}
		if keeping, ok := keepings[n.Name]; ok {
			s.address(keeping.Way, keeping.Ask(vmi, n.Name, target))
			if keeping.Recorded() {
				kept = append(kept, n.Name)
			}
		}
		wanted = append(wanted, s)
	}
	if len(kept) > 0 {
		out[ipaddress.PodAnnotation] = ipaddress.Names(kept)
	}
	wanted = append(wanted, plugins.selections(vmi)...)
	if len(wanted) > 0 {
		text, err := json.Marshal(wanted)
		if err != nil {
			panic(err) // strings only
		}
		out[AnnotationNetworks] = string(text)
	}
	return out
}

// selectionsOf reads AnnotationNetworks as this package writes it; what it does not read is none.
func selectionsOf(annotations map[string]string) (out []selection) {
	text := annotations[AnnotationNetworks]
	if text == "" || len(text) > maxStatus || json.Unmarshal([]byte(text), &out) != nil {
		return nil
	}
	return out
}

// Definition returns NAMESPACE/NAME of the NetworkAttachmentDefinition that a network of a VMI names; "" for none.
func Definition(namespace string, n *v1.Network) string {
	if n.Multus == nil {
		return ""
	}
	return macaddress.Network(namespace, n)
}

// definition returns the namespace and name of a NetworkAttachmentDefinition, which is in the VMI's namespace unless
// its name says otherwise.
func definition(namespace, name string) (string, string) {
	if other, rest, ok := strings.Cut(name, "/"); ok {
		return other, rest
	}
	return namespace, name
}

// Attachment is Multus' description of one link of a pod.
type Attachment struct {
	// Network is NAMESPACE/NAME of the NetworkAttachmentDefinition, or the cluster network's own name.
	Network   string   `json:"name"`
	Interface string   `json:"interface"`
	IPs       []string `json:"ips,omitempty"`
	MAC       string   `json:"mac,omitempty"`
	Default   bool     `json:"default,omitempty"`
	// DeviceInfo describes the device of the node that the link is, or stands for; nil for others.
	DeviceInfo *DeviceInfo `json:"device-info,omitempty"`
}

// maxStatus bounds what is read of a pod's annotation, bytes.
const maxStatus = 256 << 10

// Attachments reads AnnotationStatus of a pod. known is false when Multus has left none: it does not run on the
// pod's node.
func Attachments(annotations map[string]string) (list []Attachment, known bool) {
	text, ok := annotations[AnnotationStatus]
	if !ok || len(text) > maxStatus || json.Unmarshal([]byte(text), &list) != nil {
		return nil, false
	}
	return list, true
}

// Got returns what a pod has got of an interface's network: the network that it asked for, which is another one than
// n's while an interface waits for the migration that moves it; the addresses that Multus reports of its link, and
// whether they are to be recorded.
func Got(annotations map[string]string, nic *v1.Interface, n *v1.Network) ipaddress.Got {
	out := ipaddress.Got{
		Network: DefinitionsOf(annotations)[LinkOf(*n)],
		Kept:    ipaddress.Named(annotations[ipaddress.PodAnnotation], nic.Name),
	}
	list, _ := Attachments(annotations)
	for _, a := range list {
		if a.Interface == LinkOf(*n) {
			out.Addresses = a.IPs
		}
	}
	return out
}
