package multipolicy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

// Peer is a pod on networks of Multus.
type Peer struct {
	Namespace, Name string
	Labels          map[string]string
	// Ends are where the pod is on its networks, by NAMESPACE/NAME.
	Ends map[string]End
	// Ports are those that its containers list.
	Ports []corev1.ContainerPort
}

// End is a pod's place on a network.
type End struct {
	Addresses []netip.Addr
	// MACs are those of a guest in the pod.
	MACs []string
}

// maxAddresses is how many addresses of a pod on a network count.
const maxAddresses = 32

// maxEnds is how many networks of a pod count.
const maxEnds = 64

// Slim returns what EndsOf reads of a pod's annotation, as such an annotation; "" for nothing. Whoever may change the
// pod can make that long.
func Slim(annotations map[string]string) string {
	ends := EndsOf(annotations)
	if len(ends) == 0 {
		return ""
	}
	var list []network.Attachment
	for _, name := range slices.Sorted(maps.Keys(ends)) {
		a := network.Attachment{Network: name}
		for _, ip := range ends[name].Addresses {
			a.IPs = append(a.IPs, ip.String())
		}
		list = append(list, a)
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic(err) // plain values only
	}
	return string(text)
}

// EndsOf reads where a pod is on its networks from its annotation, which Multus writes, and whoever may change the pod.
// The pod network is among them, under a name that no policy has.
func EndsOf(annotations map[string]string) map[string]End {
	list, _ := network.Attachments(annotations)
	var out map[string]End
	for _, a := range list {
		_, there := out[a.Network]
		if a.Network == "" || len(out) >= maxEnds && !there {
			continue
		}
		if out == nil {
			out = map[string]End{}
		}
		end := out[a.Network]
		for _, text := range a.IPs {
			ip, err := netip.ParseAddr(text)
			if err != nil || ip.Zone() != "" || ip.Is4In6() || !ip.IsGlobalUnicast() {
				continue
			}
			if len(end.Addresses) < maxAddresses && !slices.Contains(end.Addresses, ip) {
				end.Addresses = append(end.Addresses, ip)
			}
		}
		out[a.Network] = end
	}
	return out
}

// peersOf returns the pods that a rule's peers select, and the blocks of addresses that it lists.
func (c *compiling) peersOf(where string, listed []networkingv1.NetworkPolicyPeer) (pods []*Peer, blocks []Block) {
	for i := range listed {
		peer := &listed[i]
		var err error
		switch {
		case peer.IPBlock != nil && (peer.PodSelector != nil || peer.NamespaceSelector != nil):
			err = errors.New("ipBlock is beside a selector")
		case peer.IPBlock != nil:
			var block Block
			if block, err = blockOf(peer.IPBlock); err == nil {
				blocks = append(blocks, block)
			}
		case peer.PodSelector == nil && peer.NamespaceSelector == nil:
			err = errors.New("is empty")
		default:
			var selected []*Peer
			selected, err = c.selected(peer)
			pods = append(pods, selected...)
		}
		if err != nil {
			c.note(where, fmt.Errorf("peer %d: %w", i, err))
		}
	}
	return pods, blocks
}

// selected returns the pods that the selectors of a peer match, on the policy's networks.
func (c *compiling) selected(peer *networkingv1.NetworkPolicyPeer) ([]*Peer, error) {
	c.selects = true
	pods, err := selectorOf(peer.PodSelector)
	if err != nil {
		return nil, fmt.Errorf("podSelector: %w", err)
	}
	namespaces, err := selectorOf(peer.NamespaceSelector)
	if err != nil {
		return nil, fmt.Errorf("namespaceSelector: %w", err)
	}
	var out []*Peer
	for i := range c.in.Peers {
		p := &c.in.Peers[i]
		if peer.NamespaceSelector == nil && p.Namespace != c.in.Namespace {
			continue
		}
		if peer.NamespaceSelector != nil {
			of, known := c.in.Namespaces[p.Namespace]
			if !known || !namespaces.Matches(labels.Set(of)) {
				continue
			}
		}
		if pods.Matches(labels.Set(p.Labels)) && c.on(p) {
			out = append(out, p)
		}
	}
	return out, nil
}

// on reports whether a pod is on a network that the policy is for.
func (c *compiling) on(p *Peer) bool {
	return slices.ContainsFunc(c.networks, func(name string) bool { _, is := p.Ends[name]; return is })
}

// selectorOf returns a selector; none selects all.
func selectorOf(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(s)
}

func blockOf(b *networkingv1.IPBlock) (Block, error) {
	cidr, err := prefixOf(b.CIDR)
	if err != nil {
		return Block{}, fmt.Errorf("ipBlock: %w", err)
	}
	out := Block{CIDR: cidr}
	for _, text := range b.Except {
		except, err := prefixOf(text)
		if err != nil {
			return Block{}, fmt.Errorf("ipBlock: except: %w", err)
		}
		if except.Addr().Is4() != cidr.Addr().Is4() {
			return Block{}, fmt.Errorf("ipBlock: except: %s is of another family than %s", except, cidr)
		}
		out.Except = append(out.Except, except)
	}
	return out, nil
}

func prefixOf(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, err
	}
	if p.Addr().Is4In6() {
		return p, fmt.Errorf("%s is IPv4 written as IPv6", text)
	}
	return p.Masked(), nil
}
