package wait

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

func running() State {
	return State{
		VM: &v1.VirtualMachine{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", Generation: 2},
			Status: v1.VirtualMachineStatus{
				PrintableStatus:    v1.VirtualMachineStatusRunning,
				ObservedGeneration: 2,
				Conditions: []v1.VirtualMachineCondition{
					{Type: v1.VirtualMachineReady, Status: corev1.ConditionTrue},
				},
			},
		},
		VMI: &v1.VirtualMachineInstance{
			ObjectMeta: metav1.ObjectMeta{UID: "one"},
			Status: v1.VirtualMachineInstanceStatus{
				Phase: v1.Running,
				Conditions: []v1.VirtualMachineInstanceCondition{
					{Type: v1.VirtualMachineInstanceAgentConnected, Status: corev1.ConditionTrue},
				},
				Interfaces: []v1.VirtualMachineInstanceNetworkInterface{{IP: "10.0.0.1"}},
			},
		},
	}
}

func stopped() State {
	s := running()
	s.VM.Status.PrintableStatus = v1.VirtualMachineStatusStopped
	s.VM.Status.Conditions[0].Status = corev1.ConditionFalse
	s.VMI = nil
	return s
}

func TestConditions(t *testing.T) {
	with := func(s State, change func(*State)) State {
		change(&s)
		return s
	}
	now := metav1.Now()
	request := []v1.VirtualMachineStateChangeRequest{{Action: v1.StopRequest}}
	for _, test := range []struct {
		what  string
		forIt string
		state State
		want  bool
	}{
		{"running", "running", running(), true},
		{"running, any case", "Running", running(), true},
		{"stopped", "running", stopped(), false},
		{
			"about to stop", "running", with(running(), func(s *State) { s.VM.Status.StateChangeRequests = request }),
			false,
		},
		{"being deleted", "running", with(running(), func(s *State) { s.VMI.DeletionTimestamp = &now }), false},
		{"instance alone", "running", with(running(), func(s *State) { s.VM = nil }), true},
		{"scheduling", "running", with(running(), func(s *State) { s.VMI.Status.Phase = v1.Scheduling }), false},
		{"stopped", "stopped", stopped(), true},
		{"running", "stopped", running(), false},
		{"start not seen yet", "stopped", with(stopped(), func(s *State) { s.VM.Generation = 3 }), false},
		{
			"no observed generation", "stopped", with(stopped(), func(s *State) { s.VM.Status.ObservedGeneration = 0 }),
			true,
		},
		{
			"start requested", "stopped", with(stopped(), func(s *State) { s.VM.Status.StateChangeRequests = request }),
			false,
		},
		{
			"ended instance alone", "stopped",
			State{VMI: &v1.VirtualMachineInstance{Status: v1.VirtualMachineInstanceStatus{Phase: v1.Succeeded}}},
			true,
		},
		{"ready", "ready", running(), true},
		{"not ready", "ready", stopped(), false},
		{"agent", "agent", running(), true},
		{"agent of nothing", "agent", stopped(), false},
		{"ip", "ip", running(), true},
		{"no ip yet", "ip", with(running(), func(s *State) { s.VMI.Status.Interfaces[0].IP = "" }), false},
		{"deleted", "deleted", State{}, true},
		{"there", "delete", running(), false},
		{"condition of the instance", "condition=AgentConnected", running(), true},
		{"condition of the last instance", "condition=Old", with(running(), func(s *State) {
			s.VM.Status.Conditions = append(s.VM.Status.Conditions,
				v1.VirtualMachineCondition{Type: "Old", Status: corev1.ConditionTrue})
		}), false},
		{"condition of the VM", "condition=Ready=true", running(), true},
		{"condition false", "condition=Ready=False", stopped(), true},
		{"condition absent", "condition=Paused", running(), false},
		{"field", "jsonpath={.status.printableStatus}=Running", running(), true},
		{"field without braces", "jsonpath=.status.printableStatus=Stopped", running(), false},
		{"quoted value", `jsonpath='{.status.printableStatus}'='Running'`, running(), true},
		{"number", "jsonpath={.status.observedGeneration}=2", running(), true},
		{"filter with =", `jsonpath={.status.conditions[?(@.type=="Ready")].status}=True`, running(), true},
		{"exists", "jsonpath={.status.conditions}", running(), true},
		{"does not exist", "jsonpath={.status.volumeRequests}", running(), false},
		{"nothing to look at", "jsonpath={.status}", State{}, false},
	} {
		condition, err := Parse(test.forIt, false)
		if err != nil {
			t.Fatal(err)
		}
		got, err := condition.Met(test.state)
		if err != nil || got != test.want {
			t.Errorf("--for=%s, %s: got %v, %v; want %v", test.forIt, test.what, got, err, test.want)
		}
	}
}

func TestJSONPathOnInstance(t *testing.T) {
	condition, err := Parse("jsonpath={.status.phase}=Running", true)
	if err != nil {
		t.Fatal(err)
	}
	if met, err := condition.Met(running()); !met || err != nil {
		t.Errorf("got %v, %v", met, err)
	}
}

func TestRunningAfter(t *testing.T) {
	if met, _ := RunningAfter("one").Met(running()); met {
		t.Error("the instance that was there counts")
	}
	if met, _ := RunningAfter("zero").Met(running()); !met {
		t.Error("another instance does not count")
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{"", "happy", "running=yes", "condition=", "jsonpath=", "jsonpath={.a"} {
		if _, err := Parse(text, false); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestJSONPathOfManyValuesIsAnError(t *testing.T) {
	condition, err := Parse("jsonpath={.status.interfaces[*].ipAddress}=x", true)
	if err != nil {
		t.Fatal(err)
	}
	s := running()
	s.VMI.Status.Interfaces = append(s.VMI.Status.Interfaces, s.VMI.Status.Interfaces[0])
	if _, err := condition.Met(s); err == nil {
		t.Error("two values are accepted")
	}
}
