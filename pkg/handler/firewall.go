package handler

import (
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/report/nwfilter"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/network/apply"
	"github.com/virtkit/virtkit/pkg/vm/network/multipolicy"
)

// Firewall returns what the guest of a VMI on this node may send, and what of it was dropped.
func (r *Reconciler) Firewall(vmi types.NamespacedName) (*nwfilter.Filter, error) {
	s := r.followed(vmi)
	if s == nil {
		return nil,
			stream.NewNotRunning(fmt.Sprintf("VirtualMachineInstance %s does not run on node %s", vmi, r.Node.Name))
	}
	plan, err := s.node.plans.Load(s.target.Pod)
	if err != nil {
		return nil, err
	}
	if plan == nil {
		return nil, stream.NewNotRunning(errNoNetwork.Error())
	}
	ns, err := s.netns()
	if err != nil {
		return nil, stream.NewNotRunning(err.Error())
	}
	defer ns.Close()
	dropped, err := apply.Dropped(ns, *plan)
	if err != nil {
		return nil, err
	}
	rules := s.holding()
	passed, err := apply.Passed(ns, *plan, rules)
	if err != nil {
		return nil, err
	}
	return firewallOf(plan, dropped, rules, passed), nil
}

// netns opens the network namespace of the guest's pod. It fails while the launcher is not connected.
func (s *session) netns() (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return nil, errNoNetwork
	}
	return s.process.Netns() // under the lock, since the process is released with the session's connection
}

// The directions of policies.
const (
	ingress = "ingress"
	egress  = "egress"
)

// addPolicies adds the policies that hold on an interface.
func addPolicies(row *nwfilter.Interface, of multipolicy.Interface, passed apply.Passage) {
	for i := range of.Policies {
		p := &of.Policies[i]
		policy := nwfilter.Policy{Name: p.Name, Wrong: p.Wrong}
		if p.Ingress != nil {
			policy.Passed = append(policy.Passed, nwfilter.Counted{Direction: ingress, Frames: passed.Ingress[p.Name]})
		}
		if p.Egress != nil {
			policy.Passed = append(policy.Passed, nwfilter.Counted{Direction: egress, Frames: passed.Egress[p.Name]})
		}
		row.Policies = append(row.Policies, policy)
	}
	row.Forgotten = passed.Forgotten
	in, out := of.Closed()
	if in {
		row.Denied = append(row.Denied, nwfilter.Counted{Direction: ingress, Frames: passed.DroppedIngress})
	}
	if out {
		row.Denied = append(row.Denied, nwfilter.Counted{Direction: egress, Frames: passed.DroppedEgress})
	}
}

// unguarded are the reasons for which nothing is looked at, by binding.
var unguarded = map[network.Binding]string{
	network.Masquerade: "the guest is behind the pod's own address",
	network.Tap:        "a CNI plugin has made its tap",
	network.SRIOV:      "the guest has the device itself",
	network.Bridge: "the annotation " + network.AllowSpoofing + " names it, or the guest was started before there " +
		"were such rules",
}

// firewallOf reports a plan with the frames that its guards have dropped, the policies that hold, and what they have
// let through and dropped, by interface.
func firewallOf(
	plan *network.Plan, dropped map[string]map[network.Spoof]uint64, rules multipolicy.Rules,
	passed map[string]apply.Passage,
) *nwfilter.Filter {
	out := &nwfilter.Filter{Interfaces: []nwfilter.Interface{}}
	for i := range plan.Interfaces {
		nic := &plan.Interfaces[i]
		row := nwfilter.Interface{Name: nic.Name, Binding: string(nic.Binding), MAC: nic.MAC}
		if nic.Guard == nil {
			row.Unguarded = unguarded[nic.Binding]
		} else {
			row.IPv4, row.IPv6 = nic.Guard.IPv4, nic.Guard.IPv6
			for _, a := range nic.Guard.Addresses {
				row.Addresses = append(row.Addresses, a.String())
			}
			for _, kind := range network.Spoofs {
				row.Dropped = append(row.Dropped, nwfilter.Dropped{Kind: string(kind), Frames: dropped[nic.Name][kind]})
			}
		}
		if nic.Binding == network.Bridge {
			addPolicies(&row, rules[nic.Name], passed[nic.Name])
		}
		out.Interfaces = append(out.Interfaces, row)
	}
	return out
}
