package events

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestMatch(t *testing.T) {
	event := func(kind, name, eventType string) *corev1.Event {
		return &corev1.Event{InvolvedObject: corev1.ObjectReference{Kind: kind, Name: name}, Type: eventType}
	}
	for _, c := range []struct {
		s    Selection
		e    *corev1.Event
		want bool
	}{
		{Selection{}, event("VirtualMachine", "demo", "Normal"), true},
		{Selection{}, event("Pod", "virt-launcher-demo-abcde", "Normal"), true},
		{Selection{}, event("Pod", "web-1", "Normal"), false},
		{Selection{}, event("Node", "demo", "Normal"), false},
		{Selection{Name: "demo"}, event("VirtualMachineInstance", "demo", "Normal"), true},
		{Selection{Name: "demo"}, event("VirtualMachineInstance", "demo2", "Normal"), false},
		{Selection{Name: "demo"}, event("Pod", "virt-launcher-demo-abcde", "Normal"), true},
		{Selection{Name: "demo"}, event("Pod", "virt-launcher-demo-two-abcde", "Normal"), false},
		{Selection{Name: "demo"}, event("Pod", "hp-volume-demo-x7", "Normal"), true},
		{Selection{Name: "demo"}, event("VirtualMachineInstanceMigration", "demo-migration-x", "Normal"), true},
		{Selection{Name: "demo", Types: []string{"warning"}}, event("VirtualMachine", "demo", "Normal"), false},
		{Selection{Name: "demo", Types: []string{"warning"}}, event("VirtualMachine", "demo", "Warning"), true},
	} {
		if got := c.s.Match(c.e); got != c.want {
			t.Errorf("%+v matches %s %s %s: %v", c.s, c.e.InvolvedObject.Kind, c.e.InvolvedObject.Name, c.e.Type, got)
		}
	}
}
