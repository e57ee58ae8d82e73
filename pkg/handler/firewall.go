package handler

import (
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/report/nwfilter"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/network/apply"
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
	return firewallOf(plan, dropped), nil
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

// unguarded are the reasons for which nothing is looked at, by binding.
var unguarded = map[network.Binding]string{
	network.Masquerade: "the guest is behind the pod's own address",
	network.Tap:        "a CNI plugin has made its tap",
	network.SRIOV:      "the guest has the device itself",
	network.Bridge:     "the annotation " + network.AllowSpoofing + " names it",
}

// firewallOf reports a plan with the frames that its guards have dropped, by interface.
func firewallOf(plan *network.Plan, dropped map[string]map[network.Spoof]uint64) *nwfilter.Filter {
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
		out.Interfaces = append(out.Interfaces, row)
	}
	return out
}
