// Package nwfilter reports what a guest may send on its networks, and what of it was dropped: virt-handler reads both
// in the guest's pod, virt-api hands them on, `virtctl firewall show` prints them. The JSON is virtkit's own part of
// subresources.kubevirt.io: GET …/namespaces/NS/virtualmachineinstances/NAME/firewall.
package nwfilter

// Filter has the interfaces of one guest, in the order of its spec.
type Filter struct {
	Interfaces []Interface `json:"interfaces"`
}

// Interface is one of the guest's.
type Interface struct {
	// Name is the interface's in the VMI's spec, Binding how it reaches the pod's network: masquerade, bridge, tap or
	// sriov. MAC is the guest's.
	Name    string `json:"name"`
	Binding string `json:"binding"`
	MAC     string `json:"mac,omitempty"`
	// Unguarded is why what the guest sends here is not looked at, a clause; empty where it is.
	Unguarded string `json:"unguarded,omitempty"`
	// IPv4 and IPv6 say that the guest may send from no addresses of the family but Addresses, and a link-local one
	// with IPv6; from any where they are false.
	IPv4 bool `json:"ipv4,omitempty"`
	IPv6 bool `json:"ipv6,omitempty"`
	// Addresses are the guest's.
	Addresses []string `json:"addresses,omitempty"`
	// Dropped counts the frames that the guest has sent as somebody else since its pod began, by what was wrong with
	// them: all kinds, in the order in which a frame is looked at.
	Dropped []Dropped `json:"dropped,omitempty"`
	// Policies are the MultiNetworkPolicies that hold here, by name.
	Policies []Policy `json:"policies,omitempty"`
	// Denied counts the frames that none of them allows, by direction, which is there when a policy is for it.
	Denied []Counted `json:"denied,omitempty"`
	// Forgotten counts the frames that began connections which are not remembered, since there are too many.
	Forgotten uint64 `json:"forgotten,omitempty"`
}

// Policy is a MultiNetworkPolicy that holds on an interface.
type Policy struct {
	// Name is the policy's, in the namespace of the guest.
	Name string `json:"name"`
	// Passed counts the frames that it let through, by each direction that it is for: those that began a connection,
	// and of TCP all that tried to.
	Passed []Counted `json:"passed"`
	// Wrong says what in the policy has no meaning, and so allows nothing.
	Wrong []string `json:"wrong,omitempty"`
}

// Counted counts frames of a direction.
type Counted struct {
	// Direction is ingress, to the guest, or egress, from it; Frames is how many there were.
	Direction string `json:"direction"`
	Frames    uint64 `json:"frames"`
}

// Dropped counts frames of a kind. docs/networking.md says what the kinds are.
type Dropped struct {
	// Kind is mac, hidden, arp, dhcp, router, nd or ip, Frames how many were dropped.
	Kind   string `json:"kind"`
	Frames uint64 `json:"frames"`
}
