package lifecycle

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/wait"
)

// An instance is deleted when it is gone, or another of its name is there, whatever becomes of its VM.
func TestUntilInstanceGone(t *testing.T) {
	vm := &v1.VirtualMachine{}
	for name, tc := range map[string]struct {
		there types.UID // "" for none
		gone  bool
	}{"there": {"old", false}, "none": {"", true}, "another": {"new", true}} {
		state := wait.State{VM: vm}
		if tc.there != "" {
			state.VMI = &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{UID: tc.there}}
		}
		if gone, err := UntilInstanceGone("old").Met(state); err != nil || gone != tc.gone {
			t.Errorf("%s: %v, %v", name, gone, err)
		}
	}
	deleted, err := wait.Parse("deleted", true)
	if err != nil {
		t.Fatal(err)
	}
	if gone, err := deleted.Met(wait.State{VM: vm}); !gone || err != nil {
		t.Errorf("wait vmi/NAME: %v, %v", gone, err)
	}
}

// A VM is deleted when it and its instance are gone, whatever has its name by then.
func TestUntilGone(t *testing.T) {
	vm := func(uid types.UID) *v1.VirtualMachine {
		return &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{UID: uid}}
	}
	of := func(uid types.UID, owner *v1.VirtualMachine) *v1.VirtualMachineInstance {
		owners := []metav1.OwnerReference{*metav1.NewControllerRef(owner, v1.VirtualMachineGroupVersionKind)}
		return &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{UID: uid, OwnerReferences: owners}}
	}
	old, anew := vm("old"), vm("anew")
	for name, tc := range map[string]struct {
		vm, instance types.UID
		state        wait.State
		gone         bool
	}{
		"nothing":                       {"old", "i", wait.State{}, true},
		"it is there":                   {"old", "i", wait.State{VM: old}, false},
		"its instance is there":         {"old", "i", wait.State{VMI: of("i", old)}, false},
		"an instance of it is there":    {"old", "", wait.State{VMI: of("i", old)}, false},
		"another":                       {"old", "i", wait.State{VM: anew}, true},
		"another, and its instance":     {"old", "i", wait.State{VM: anew, VMI: of("j", anew)}, true},
		"another with its first guest":  {"old", "", wait.State{VM: anew, VMI: of("j", anew)}, true},
		"another, and the old instance": {"old", "i", wait.State{VM: anew, VMI: of("i", old)}, false},
		"any":                           {"", "", wait.State{VM: anew}, false},
	} {
		if gone, err := UntilGone(tc.vm, tc.instance).Met(tc.state); err != nil || gone != tc.gone {
			t.Errorf("%s: %v, %v", name, gone, err)
		}
	}
}

// TestUntilPaused: a pause is done when the guest stands still and its VM shows it.
func TestUntilPaused(t *testing.T) {
	instance := func(paused corev1.ConditionStatus) *v1.VirtualMachineInstance {
		return &v1.VirtualMachineInstance{Status: v1.VirtualMachineInstanceStatus{
			Phase:      v1.Running,
			Conditions: []v1.VirtualMachineInstanceCondition{{Type: v1.VirtualMachineInstancePaused, Status: paused}},
		}}
	}
	for name, tc := range map[string]struct {
		paused        corev1.ConditionStatus
		shows         v1.VirtualMachinePrintableStatus // "-" is an instance without a VM
		pause, resume bool
	}{
		"paused":                       {corev1.ConditionTrue, v1.VirtualMachineStatusPaused, true, false},
		"paused, and not shown yet":    {corev1.ConditionTrue, v1.VirtualMachineStatusRunning, false, false},
		"started paused":               {corev1.ConditionTrue, v1.VirtualMachineStatusStarting, false, false},
		"paused while it moves":        {corev1.ConditionTrue, v1.VirtualMachineStatusMigrating, true, false},
		"paused, without a VM":         {corev1.ConditionTrue, "-", true, false},
		"runs on":                      {corev1.ConditionFalse, v1.VirtualMachineStatusRunning, false, true},
		"runs on, and not shown yet":   {corev1.ConditionFalse, v1.VirtualMachineStatusPaused, false, false},
		"runs on, without a VM":        {corev1.ConditionFalse, "-", false, true},
		"runs on, and is to be gone":   {corev1.ConditionFalse, v1.VirtualMachineStatusTerminating, false, true},
		"runs on, shown as being late": {corev1.ConditionFalse, v1.VirtualMachineStatusStarting, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			state := wait.State{VMI: instance(tc.paused)}
			if tc.shows != "-" {
				state.VM = &v1.VirtualMachine{Status: v1.VirtualMachineStatus{PrintableStatus: tc.shows}}
			}
			for verb, want := range map[Verb]bool{Pause: tc.pause, Unpause: tc.resume} {
				condition, _ := Until(verb, "", false)
				if got, err := condition.Met(state); err != nil || got != want {
					t.Errorf("%s: %v, %v; want %v", verb, got, err, want)
				}
			}
		})
	}
}
