package app

import (
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// lone is an instance without a VM.
func lone(name string, conditions ...v1.VirtualMachineInstanceCondition) v1.VirtualMachineInstance {
	return v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name, UID: types.UID("vmi-" + name)},
		Status:     v1.VirtualMachineInstanceStatus{Phase: v1.Running, Conditions: conditions},
	}
}

// paused is the condition of a guest that is.
var paused = v1.VirtualMachineInstanceCondition{
	Type: v1.VirtualMachineInstancePaused, Status: corev1.ConditionTrue,
}

// TestPauseOfSeveral pauses what can be, and lets go on what is paused where nothing can be.
func TestPauseOfSeveral(t *testing.T) {
	t.Parallel()
	off := v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "off"},
		Status:     v1.VirtualMachineStatus{PrintableStatus: v1.VirtualMachineStatusStopped},
	}
	for name, c := range map[string]struct {
		instances []v1.VirtualMachineInstance
		question  string
		did       []string
	}{
		"a paused and a stopped one": {
			[]v1.VirtualMachineInstance{lone("held", paused)},
			"Unpause prod/held? 1 marked machine is left out: it is not running.",
			[]string{"unpause prod/held"},
		},
		"a running one besides": {
			[]v1.VirtualMachineInstance{lone("held", paused), lone("runs")},
			"Pause prod/runs? 2 marked machines are left out: ",
			[]string{"pause prod/runs"},
		},
	} {
		f := &fake{}
		a := New(world(f))
		a.World.Machines.Load([]v1.VirtualMachine{off}, c.instances)
		drive(t, a, Changed{})
		press(t, a, "*", "p")
		if a.ask == nil || !strings.HasPrefix(a.ask.Question, c.question) || len(f.done) > 0 {
			t.Errorf("%s: asks %+v, did %q, says %q", name, a.ask, f.done, a.notice)
			continue
		}
		press(t, a, "y")
		if !slices.Equal(f.done, c.did) {
			t.Errorf("%s: did %q", name, f.done)
		}
	}
	f := &fake{}
	a := New(world(f))
	a.World.Machines.Load(nil, []v1.VirtualMachineInstance{lone("held", paused)})
	drive(t, a, Changed{})
	if s := a.screen(); !strings.Contains(s, "◆ Paused") {
		t.Errorf("an instance without a VM is not called paused:\n%s", s)
	}
	if s := ansi.Strip(a.screen()); !strings.Contains(s, "p unpause") {
		t.Errorf("the key bar does not say that p unpauses:\n%s", s)
	}
	press(t, a, "p") // the same key takes it back
	if a.ask != nil || !slices.Equal(f.done, []string{"unpause prod/held"}) {
		t.Errorf("one alone: asks %+v, did %q", a.ask, f.done)
	}
}
