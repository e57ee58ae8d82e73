package handler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/network/apply"
	"github.com/virtkit/virtkit/pkg/vm/network/multipolicy"
)

// policyRetryMost is the longest wait before policies that could not be applied are tried again.
const policyRetryMost = 30 * time.Second

// errPoliciesUnread is a VMI of which virt-controller has not said yet what holds for its guest.
var errPoliciesUnread = errors.New("which MultiNetworkPolicies hold is not known yet: virt-controller writes it into " +
	"the VMI's annotation " + network.AnnotationPolicies + "; see whether virt-controller of this version runs")

// policiesOf returns what holds for the guest of a VMI on the interfaces of its plan, each on the network that its pod
// was connected to, as virt-controller has written it into the VMI: nobody else may. It fails where that is not
// written. Of a guest that runs, what is not written any more holds as in held, and what nobody knows lets nothing
// pass.
func policiesOf(
	vmi *v1.VirtualMachineInstance, plan *network.Plan, held multipolicy.Rules, runs bool,
) (multipolicy.Rules, error) {
	on := multipolicy.On(vmi)
	var rules, out multipolicy.Rules
	for i := range plan.Interfaces {
		nic := &plan.Interfaces[i]
		at := cmp.Or(nic.Network, on[nic.Name])
		if nic.Binding != network.Bridge || at == "" {
			continue
		}
		text, written := vmi.Annotations[network.AnnotationPolicies]
		if !written {
			return nil, fmt.Errorf("interface %q: %w", nic.Name, errPoliciesUnread)
		}
		if out == nil {
			var err error
			if rules, err = multipolicy.Decode(text); err != nil {
				return nil, err
			}
			out = multipolicy.Rules{}
		}
		here, known := rules.On(nic.Name, at)
		if !known && runs {
			if here, known = held.On(nic.Name, at); !known {
				here, known = multipolicy.Unknown(at), true
			}
		}
		if !known {
			return nil, fmt.Errorf("interface %q: %w", nic.Name, errPoliciesUnread)
		}
		out[nic.Name] = here
	}
	return out, nil
}

// runsHere reports whether the guest of a VMI runs on this node already, behind the rules that its pod has.
func (s *session) runsHere(vmi *v1.VirtualMachineInstance) bool {
	return vmi.Status.NodeName == s.node.Name && vmi.Status.Phase == v1.Running
}

// police puts the policies of a guest into its pod before it has a tap to send by. It fails where they are not known
// yet: the guest does not start then. One that runs stays behind the rules that it has, until keepPoliced has others.
func (s *session) police(vmi *v1.VirtualMachineInstance, ns *os.File, plan *network.Plan) error {
	runs := s.runsHere(vmi)
	rules, err := policiesOf(vmi, plan, s.holding(), runs)
	if err != nil {
		if runs {
			return nil
		}
		return err
	}
	if err := apply.Police(ns, *plan, rules); err != nil {
		return fmt.Errorf("MultiNetworkPolicies: %w", err)
	}
	s.holds(rules)
	return nil
}

// keepPoliced keeps the rules in the pod as virt-controller says, until ctx ends; also those of a pod that the guest is
// yet to come to.
func (s *session) keepPoliced(ctx context.Context, process *podfs.Process) {
	put := func(plan network.Plan, rules multipolicy.Rules) error {
		ns, err := process.Netns()
		if err != nil {
			return err
		}
		defer ns.Close()
		return apply.Police(ns, plan, rules)
	}
	var done policed
	s.sync(ctx, "MultiNetworkPolicies of the guest", policyRetryMost,
		func(vmi *v1.VirtualMachineInstance) (time.Duration, error) {
			err := s.policeAgain(ctx, &done, put, vmi)
			failure := ""
			if err != nil {
				failure = describe(err)
			}
			if s.observation().Unpoliced != failure {
				s.report(ctx, true, func(o *observation) { o.Unpoliced = failure })
			}
			return 0, err
		})
}

// policed is what was put into a pod: of which plan, by which text, for a guest that ran or did not.
type policed struct {
	plan *network.Plan
	text string
	runs bool
}

// policeAgain has put put the policies of a VMI into the pod, unless they are those of done.
func (s *session) policeAgain(
	ctx context.Context, done *policed, put func(network.Plan, multipolicy.Rules) error, vmi *v1.VirtualMachineInstance,
) error {
	now := policed{s.observation().Plan, vmi.Annotations[network.AnnotationPolicies], s.runsHere(vmi)}
	if now.plan == nil || now == *done {
		return nil
	}
	rules, err := policiesOf(vmi, now.plan, s.holding(), now.runs)
	if errors.Is(err, errPoliciesUnread) {
		return nil // an earlier virt-controller's VMI: this one's annotation makes another pass
	}
	if err == nil {
		err = s.do(ctx, "policies of the pod's network", func() error { return put(*now.plan, rules) })
	}
	if err == nil {
		s.holds(rules)
		*done = now
	}
	return err
}

// holds remembers what was put into the pod.
func (s *session) holds(rules multipolicy.Rules) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policies = rules
}

// holding returns what was put into the pod last.
func (s *session) holding() multipolicy.Rules {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.policies
}

// behindPolicies leaves in a plan, whose interfaces are to be plugged in, those whose rules are in the pod, and says
// which it has taken out.
func (s *session) behindPolicies(vmi *v1.VirtualMachineInstance, plan *network.Plan) (out error) {
	held, on := s.holding(), multipolicy.On(vmi)
	plan.Interfaces = slices.DeleteFunc(plan.Interfaces, func(nic network.Interface) bool {
		at := cmp.Or(nic.Network, on[nic.Name])
		if _, known := held.On(nic.Name, at); nic.Binding != network.Bridge || at == "" || known {
			return false
		}
		out = errors.Join(out, fmt.Errorf("interface %q: %w", nic.Name, errPoliciesUnread))
		return true
	})
	return out
}
