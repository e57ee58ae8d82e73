package handler

import (
	"errors"
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
	for name, c := range map[string]struct {
		text, error string
		binding     network.Binding
		rules       bool
	}{
		"not written":          {"", errPoliciesUnread.Error(), network.Bridge, false},
		"not this interface's": {`{}`, errPoliciesUnread.Error(), network.Bridge, false},
		"of another network": {
			`{"red":{"network":"default/blue"}}`, errPoliciesUnread.Error(), network.Bridge, false,
		},
		"no rules":            {`[`, network.AnnotationPolicies, network.Bridge, false},
		"none hold":           {noneHold, "", network.Bridge, true},
		"one holds":           {oneHolds, "", network.Bridge, true},
		"a tap of the plugin": {"", "", network.Tap, false},
	} {
		rules, err := policiesOf(onRed(c.text), planOfRed(c.binding))
		if (err == nil) != (c.error == "") || err != nil && !strings.Contains(err.Error(), c.error) ||
			(rules != nil) != c.rules {
			t.Errorf("%s: %v, %v", name, rules, err)
		}
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
	var done *string
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
