package handler

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/network/multipolicy"
)

// onRed returns a VMI with interfaces on the pod network, on default/red, and as a card, with the annotation text; ""
// for none.
func onRed(text string) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Namespace = "default"
	if text != "" {
		vmi.Annotations = map[string]string{network.AnnotationPolicies: text}
	}
	vmi.Spec.Networks = []v1.Network{
		{Name: "default", NetworkSource: v1.NetworkSource{Pod: &v1.PodNetwork{}}},
		{Name: "red", NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: "red"}}},
	}
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{{Name: "default"}, {Name: "red"}}
	return vmi
}

func planOfRed(binding network.Binding) *network.Plan {
	return &network.Plan{Interfaces: []network.Interface{
		{Name: "default", Binding: network.Bridge, PodLink: network.PodLink, Tap: "tap0"},
		{Name: "red", Binding: binding, PodLink: "net1", Tap: "tap1"},
	}}
}

const (
	noneHold = `{"red":{"network":"default/red"}}`
	oneHolds = `{"red":{"network":"default/red","policies":[{"name":"p","ingress":{}}]}}`
)

func TestPoliciesOf(t *testing.T) {
	const moves = `{"red":{"network":"default/blue","others":[{"network":"default/red","policies":[` +
		`{"name":"p","ingress":{}}]}]}}`
	held := multipolicy.Rules{"red": {Network: "default/red", Policies: []multipolicy.Policy{{Name: "held"}}}}
	for name, c := range map[string]struct {
		text, error string
		binding     network.Binding
		// at is the network of the plan, held what the pod has.
		at   string
		held multipolicy.Rules
		// starts and runs are the policies of a guest that starts or runs; "-" for none that is known.
		starts, runs string
	}{
		"not written":          {error: errPoliciesUnread.Error(), binding: network.Bridge},
		"not this interface's": {text: `{}`, binding: network.Bridge, starts: "-", runs: "(not known)"},
		"of another network": {
			text: `{"red":{"network":"default/blue"}}`, binding: network.Bridge, starts: "-", runs: "(not known)",
		},
		"not this interface's any more": {text: `{}`, binding: network.Bridge, held: held, starts: "-", runs: "held"},
		"on its way to another network": {
			text: moves, binding: network.Bridge, at: "default/red", starts: "p", runs: "p",
		},
		"there":               {text: moves, binding: network.Bridge, at: "default/blue"},
		"no rules":            {text: `[`, error: network.AnnotationPolicies, binding: network.Bridge},
		"none hold":           {text: noneHold, binding: network.Bridge},
		"one holds":           {text: oneHolds, binding: network.Bridge, starts: "p", runs: "p"},
		"a tap of the plugin": {binding: network.Tap},
	} {
		for _, runs := range []bool{false, true} {
			plan := planOfRed(c.binding)
			plan.Interfaces[1].Network = c.at
			rules, err := policiesOf(onRed(c.text), plan, c.held, runs)
			want, fails := c.starts, c.error
			if runs {
				want = c.runs
			}
			if want == "-" {
				want, fails = "", errPoliciesUnread.Error()
			}
			if (err == nil) != (fails == "") || err != nil && !strings.Contains(err.Error(), fails) {
				t.Errorf("%s, runs %v: %v, want %q", name, runs, err, fails)
			}
			var got string
			for _, p := range rules["red"].Policies {
				got += p.Name
			}
			if got != want || err == nil && (rules["red"].Network == "") != (c.binding == network.Tap) {
				t.Errorf("%s, runs %v: %+v, want %q", name, runs, rules, want)
			}
		}
	}
}

// Rules of an interface that is to be absent hold while the guest may have it, and one that comes is not plugged in
// before its rules are there.
func TestPoliciesOfPlug(t *testing.T) {
	absent := onRed(oneHolds)
	absent.Spec.Domain.Devices.Interfaces[1].State = v1.InterfaceStateAbsent
	rules, err := policiesOf(absent, planOfRed(network.Bridge), nil, true)
	if err != nil || len(rules["red"].Policies) != 1 || rules["red"].Policies[0].Name != "p" {
		t.Errorf("absent: %+v, %v", rules, err)
	}
	s := &session{}
	plugs := func(binding network.Binding) (int, error) {
		plan := planOfRed(binding)
		err := s.behindPolicies(onRed(oneHolds), plan)
		return len(plan.Interfaces), err
	}
	if n, err := plugs(network.Bridge); !errors.Is(err, errPoliciesUnread) || n != 1 {
		t.Errorf("nothing is there: %d interfaces, %v", n, err)
	}
	if n, err := plugs(network.Tap); err != nil || n != 2 {
		t.Errorf("a tap of the plugin's: %d interfaces, %v", n, err)
	}
	s.holds(rules)
	if n, err := plugs(network.Bridge); err != nil || n != 2 {
		t.Errorf("the rules are there: %d interfaces, %v", n, err)
	}
}

// A plan of an earlier version does not say which networks its pod asked for.
func TestPoliciesOfOldPlan(t *testing.T) {
	vmi := onRed(`{"red":{"network":"default/blue","others":[{"network":"default/red","policies":[{"name":"p"}]}]}}`)
	vmi.Spec.Networks[1].Multus.NetworkName = "blue"
	plan := planOfRed(network.Bridge)
	plan.Interfaces[1].PodLink = network.LinkOf(vmi.Spec.Networks[1])
	asked := map[string]string{network.AnnotationNetworks: fmt.Sprintf(
		`[{"name":"red","namespace":"default","interface":%q}]`, plan.Interfaces[1].PodLink)}
	(*network.Plan)(nil).Connected(asked)
	plan.Connected(asked)
	rules, err := policiesOf(vmi, plan, nil, true)
	if err != nil || len(rules["red"].Policies) != 1 || rules["red"].Policies[0].Name != "p" {
		t.Errorf("%+v, %v", rules, err)
	}
	if err := plan.CheckConnected(asked); err != nil {
		t.Error(err)
	}
	plan.Interfaces[1].Network = "default/blue"
	err = plan.CheckConnected(asked)
	if err == nil || !strings.Contains(err.Error(), "connected to network default/red") {
		t.Errorf("on another network than its VMI names: %v", err)
	}
}

// A guest does not start behind policies that nobody has read; one that runs stays behind those that its pod has.
func TestPoliceBeforeStart(t *testing.T) {
	s := &session{node: &Node{Name: nodeName}, log: slog.New(slog.DiscardHandler)}
	for name, c := range map[string]struct {
		node   string
		phase  v1.VirtualMachineInstancePhase
		refuse bool
	}{
		"starts":   {nodeName, v1.Scheduled, true},
		"incoming": {"other", v1.Running, true},
		"runs":     {nodeName, v1.Running, false},
	} {
		vmi := onRed("")
		vmi.Status.NodeName, vmi.Status.Phase = c.node, c.phase
		if err := s.police(vmi, nil, planOfRed(network.Bridge)); errors.Is(err, errPoliciesUnread) != c.refuse {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The launcher is not told to start a guest before it is known which policies hold.
func TestGuestWaitsForPolicies(t *testing.T) {
	w := newWorld(t)
	vmi := w.vmi()
	red := onRed("")
	vmi.Spec.Networks, vmi.Spec.Domain.Devices.Interfaces = red.Spec.Networks, red.Spec.Domain.Devices.Interfaces
	w.must(w.client.Update(t.Context(), vmi))
	w.must(w.node.plans.Save(podUID, planOfRed(network.Bridge)))
	w.startLauncher()
	w.startHandler()
	w.eventually("the VMI says so", func() bool {
		return slices.ContainsFunc(w.vmi().Status.Conditions, func(c v1.VirtualMachineInstanceCondition) bool {
			return c.Type == v1.VirtualMachineInstanceSynchronized &&
				strings.Contains(c.Message, errPoliciesUnread.Error())
		})
	})
	if phase := w.vmi().Status.Phase; phase != v1.Scheduled {
		t.Errorf("the guest is %s", phase)
	}
}

// Policies are put into the pod when they change, and again where that failed.
func TestPoliceAgain(t *testing.T) {
	s := &session{
		node: &Node{Name: nodeName, stepLimit: stepLimit}, log: slog.New(slog.DiscardHandler),
		changed: func(bool) {},
	}
	s.seen.Plan = planOfRed(network.Bridge)
	var put []int
	var failure error
	var done policed
	again := func(text string) error {
		return s.policeAgain(t.Context(), &done, func(_ network.Plan, rules multipolicy.Rules) error {
			put = append(put, len(rules["red"].Policies))
			return failure
		}, onRed(text))
	}
	for _, step := range []struct {
		name, text string
		fails      bool
		puts       int
	}{
		{"not read yet", "", false, 0},
		{"at first", oneHolds, false, 1},
		{"nothing new", oneHolds, false, 0},
		{"none any more, which fails", noneHold, true, 1},
		{"again", noneHold, false, 1},
		{"nothing new again", noneHold, false, 0},
		{"what cannot be read", "[", true, 0},
	} {
		before := len(put)
		failure = nil
		if step.fails {
			failure = errors.New("no")
		}
		if err := again(step.text); (err != nil) != step.fails || len(put)-before != step.puts {
			t.Errorf("%s: %v, put %d times", step.name, err, len(put)-before)
		}
	}
	if !slices.Equal(put, []int{1, 0, 0}) || len(s.holding()["red"].Policies) != 0 {
		t.Errorf("put %v, holding %v", put, s.holding())
	}
}
