package vmcontroller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/waits"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(ago time.Duration) metav1.Time { return metav1.NewTime(now.Add(-ago)) }

func testVM(strategy v1.VirtualMachineRunStrategy, change ...func(*v1.VirtualMachine)) *v1.VirtualMachine {
	vm := &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "default", UID: "vm", Generation: 3},
		Spec: v1.VirtualMachineSpec{
			RunStrategy: &strategy,
			Template: &v1.VirtualMachineInstanceTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"note": "x"},
				},
				Spec: v1.VirtualMachineInstanceSpec{Domain: v1.DomainSpec{CPU: &v1.CPU{Cores: 2}}},
			},
		},
		Status: v1.VirtualMachineStatus{RunStrategy: strategy},
	}
	for _, change := range change {
		change(vm)
	}
	return vm
}

func never(vm *v1.VirtualMachine) { vm.Status.RunStrategy = "" }

func going(vm *v1.VirtualMachine) { vm.DeletionTimestamp = new(at(0)) }

func requests(actions ...v1.StateChangeRequestAction) func(*v1.VirtualMachine) {
	return func(vm *v1.VirtualMachine) { vm.Status.StateChangeRequests = requested(actions...) }
}

// requested makes stops for the VMI with UID vmi and starts for none, as virt-api does.
func requested(actions ...v1.StateChangeRequestAction) []v1.VirtualMachineStateChangeRequest {
	var out []v1.VirtualMachineStateChangeRequest
	for _, action := range actions {
		request := v1.VirtualMachineStateChangeRequest{Action: action}
		if action == v1.StopRequest {
			request.UID = new(types.UID("vmi"))
		}
		out = append(out, request)
	}
	return out
}

func failure(count int, uid types.UID, retryIn time.Duration) *v1.VirtualMachineStartFailure {
	return &v1.VirtualMachineStartFailure{
		ConsecutiveFailCount: count, LastFailedVMIUID: uid, RetryAfterTimestamp: new(at(-retryIn)),
	}
}

func failed(count int, uid types.UID, retryIn time.Duration) func(*v1.VirtualMachine) {
	return func(vm *v1.VirtualMachine) { vm.Status.StartFailure = failure(count, uid, retryIn) }
}

// testVMI went through the phases, the last one now, each of them that long ago.
func testVMI(phase v1.VirtualMachineInstancePhase, change ...func(*v1.VirtualMachineInstance),
) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "default", UID: "vmi"},
		Status:     v1.VirtualMachineInstanceStatus{Phase: phase},
	}
	for _, change := range change {
		change(vmi)
	}
	return vmi
}

func since(phase v1.VirtualMachineInstancePhase, ago time.Duration) func(*v1.VirtualMachineInstance) {
	return func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.PhaseTransitionTimestamps = append(vmi.Status.PhaseTransitionTimestamps,
			v1.VirtualMachineInstancePhaseTransitionTimestamp{Phase: phase, PhaseTransitionTimestamp: at(ago)})
	}
}

func deleted(vmi *v1.VirtualMachineInstance) { vmi.DeletionTimestamp = new(at(0)) }

func TestDecide(t *testing.T) {
	const (
		always = v1.RunStrategyAlways
		rerun  = v1.RunStrategyRerunOnFailure
		manual = v1.RunStrategyManual
		halted = v1.RunStrategyHalted
		once   = v1.RunStrategyOnce
		start  = v1.StartRequest
		stop   = v1.StopRequest
	)
	cases := []struct {
		name string
		vm   *v1.VirtualMachine
		vmi  *v1.VirtualMachineInstance
		want Decision
	}{
		{"Always: starts", testVM(always, never), nil, Decision{Action: Create, Wanted: true}},
		{"Always: runs", testVM(always), testVMI(v1.Running), Decision{Wanted: true}},
		{"Always: shut down", testVM(always), testVMI(v1.Succeeded), Decision{Action: Delete, Wanted: true}},
		{"Always: instance on its way out", testVM(always), testVMI(v1.Running, deleted), Decision{Wanted: true}},
		{
			"Always: never ran", testVM(always), testVMI(v1.Failed, since(v1.Failed, 0)),
			Decision{Action: Delete, Wanted: true, StartFailure: failure(1, "vmi", 10*time.Second)},
		},
		{
			"Always: ran and crashed", testVM(always),
			testVMI(v1.Failed, since(v1.Running, time.Minute), since(v1.Failed, 0)),
			Decision{Action: Delete, Wanted: true, StartFailure: failure(1, "vmi", 0)},
		},
		{
			"Always: crashed again", testVM(always, failed(1, "before", 0)),
			testVMI(v1.Failed, since(v1.Running, time.Minute), since(v1.Failed, 0)),
			Decision{Action: Delete, Wanted: true, StartFailure: failure(2, "vmi", 20*time.Second)},
		},
		{
			"Always: crashed after health", testVM(always, failed(4, "before", 0)),
			testVMI(v1.Failed, since(v1.Running, time.Hour), since(v1.Failed, 0)),
			Decision{Action: Delete, Wanted: true, StartFailure: failure(1, "vmi", 0)},
		},
		{
			"Always: failure counted already", testVM(always, failed(2, "vmi", 5*time.Second)),
			testVMI(v1.Failed, since(v1.Failed, 0)),
			Decision{Action: Delete, Wanted: true, StartFailure: failure(2, "vmi", 5*time.Second)},
		},
		{
			"Always: waits", testVM(always, failed(2, "before", 5*time.Second)), nil,
			Decision{Wanted: true, StartFailure: failure(2, "before", 5*time.Second), RequeueAfter: 5 * time.Second},
		},
		{
			"Always: waited", testVM(always, failed(2, "before", 0)), nil,
			Decision{Action: Create, Wanted: true, StartFailure: failure(2, "before", 0)},
		},
		{
			"Always: runs after failures", testVM(always, failed(2, "before", 0)),
			testVMI(v1.Running, since(v1.Running, 4*time.Minute)),
			Decision{Wanted: true, StartFailure: failure(2, "before", 0), RequeueAfter: 6 * time.Minute},
		},
		{
			"Always: healthy", testVM(always, failed(2, "before", 0)),
			testVMI(v1.Running, since(v1.Running, 10*time.Minute)),
			Decision{Wanted: true},
		},
		{
			"Always: restart asked", testVM(always, requests(stop, start)), testVMI(v1.Running),
			Decision{Action: Delete, Wanted: true, Requests: requested(stop, start)},
		},
		{
			"Always: restart asked of a failing one",
			testVM(always, requests(stop, start), failed(3, "before", time.Minute)), testVMI(v1.Running),
			Decision{Action: Delete, Wanted: true, Requests: requested(stop, start)},
		},
		{
			"Always: restarting", testVM(always, requests(stop, start)), testVMI(v1.Running, deleted),
			Decision{Wanted: true, Requests: requested(stop, start)},
		},
		{
			"Always: restart, old one gone", testVM(always, requests(stop, start)), nil,
			Decision{Action: Create, Wanted: true, Requests: requested(start)},
		},
		{
			"Always: restarted", testVM(always, requests(stop, start)),
			testVMI(v1.Scheduling, func(vmi *v1.VirtualMachineInstance) { vmi.UID = "new" }),
			Decision{Wanted: true},
		},

		{"RerunOnFailure: starts", testVM(rerun, never), nil, Decision{Action: Create, Wanted: true}},
		{
			"RerunOnFailure: starts when switched to",
			testVM(rerun, func(vm *v1.VirtualMachine) { vm.Status.RunStrategy = halted }), nil,
			Decision{Action: Create, Wanted: true},
		},
		{"RerunOnFailure: shut down", testVM(rerun), testVMI(v1.Succeeded), Decision{Action: Delete}},
		{"RerunOnFailure: shut down and removed", testVM(rerun), nil, Decision{}},
		{
			"RerunOnFailure: crashed", testVM(rerun), testVMI(v1.Failed, since(v1.Failed, 0)),
			Decision{
				Action: Delete, Wanted: true, Requests: requested(start),
				StartFailure: failure(1, "vmi", 10*time.Second),
			},
		},
		{
			"RerunOnFailure: waits", testVM(rerun, requests(start), failed(1, "before", 3*time.Second)), nil,
			Decision{
				Wanted: true, Requests: requested(start), StartFailure: failure(1, "before", 3*time.Second),
				RequeueAfter: 3 * time.Second,
			},
		},
		{
			"RerunOnFailure: again", testVM(rerun, requests(start), failed(1, "before", 0)), nil,
			Decision{Action: Create, Wanted: true, Requests: requested(start), StartFailure: failure(1, "before", 0)},
		},
		{
			"RerunOnFailure: stopped", testVM(rerun, requests(stop), failed(1, "before", 0)), testVMI(v1.Running),
			Decision{Action: Delete, Wanted: true, Requests: requested(stop)},
		},
		{"RerunOnFailure: stopped, gone", testVM(rerun, requests(stop)), nil, Decision{}},
		{
			"RerunOnFailure: started again", testVM(rerun, requests(start)), testVMI(v1.Succeeded),
			Decision{Action: Delete, Wanted: true, Requests: requested(start)},
		},

		{"Manual: nothing asked", testVM(manual), nil, Decision{}},
		{
			"Manual: started", testVM(manual, requests(start)), nil,
			Decision{Action: Create, Wanted: true, Requests: requested(start)},
		},
		{"Manual: start done", testVM(manual, requests(start)), testVMI(v1.Scheduling), Decision{Wanted: true}},
		{"Manual: crashed", testVM(manual), testVMI(v1.Failed), Decision{}},
		{
			"Manual: started after a crash", testVM(manual, requests(start)), testVMI(v1.Failed),
			Decision{Action: Delete, Wanted: true, Requests: requested(start)},
		},
		{
			"Manual: stopped", testVM(manual, requests(stop)), testVMI(v1.Running),
			Decision{Action: Delete, Wanted: true, Requests: requested(stop)},
		},
		{
			"Manual: stop of another instance", testVM(manual, requests(stop)),
			testVMI(v1.Running, func(vmi *v1.VirtualMachineInstance) { vmi.UID = "new" }),
			Decision{Wanted: true},
		},

		{"Halted: stays", testVM(halted), nil, Decision{}},
		{"Halted: stops", testVM(halted), testVMI(v1.Running), Decision{Action: Delete}},
		{"Halted: removes what ended", testVM(halted), testVMI(v1.Succeeded), Decision{Action: Delete}},
		{"Halted: forgets", testVM(halted, requests(start), failed(3, "x", time.Minute)), nil, Decision{}},

		{"Once: starts", testVM(once, never), nil, Decision{Action: Create, Wanted: true}},
		{"Once: runs", testVM(once), testVMI(v1.Running), Decision{Wanted: true}},
		{"Once: crashed", testVM(once), testVMI(v1.Failed), Decision{}},
		{"Once: shut down", testVM(once), testVMI(v1.Succeeded), Decision{}},
		{"Once: removed", testVM(once), nil, Decision{}},
		{
			"Once: stopped", testVM(once, requests(stop)), testVMI(v1.Running),
			Decision{Action: Delete, Wanted: true, Requests: requested(stop)},
		},

		{"running: true", testVM("", legacy(true)), nil, Decision{Action: Create, Wanted: true}},
		{"running: false", testVM("", legacy(false)), testVMI(v1.Running), Decision{Action: Delete}},

		{"deleted", testVM(always, going), testVMI(v1.Running), Decision{Action: Delete}},
		{"deleted, instance on its way out", testVM(always, going), testVMI(v1.Running, deleted), Decision{}},
		{"deleted, instance gone", testVM(always, going), nil, Decision{}},
		{
			"deleted, instance orphaned",
			testVM(always, going, func(vm *v1.VirtualMachine) {
				vm.Finalizers = []string{metav1.FinalizerOrphanDependents}
			}),
			testVMI(v1.Running),
			Decision{},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := Decide(View{VM: c.vm, VMI: c.vmi, Now: now})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func legacy(running bool) func(*v1.VirtualMachine) {
	return func(vm *v1.VirtualMachine) { vm.Spec.RunStrategy, vm.Spec.Running = nil, &running }
}

func TestDecidePaused(t *testing.T) {
	vm := testVM(v1.RunStrategyManual, requests(v1.StartRequest))
	vm.Status.StateChangeRequests[0].Data = map[string]string{
		v1.StartRequestDataPausedKey: v1.StartRequestDataPausedTrue,
	}
	got, err := Decide(View{VM: vm, Now: now})
	if err != nil || got.Action != Create || !got.Paused {
		t.Errorf("%+v, %v", got, err)
	}
	vm.Spec.RunStrategy = new(v1.RunStrategyHalted)
	got, err = Decide(View{VM: vm, Now: now})
	if err != nil || got.Action != Keep || got.Strategy != v1.RunStrategyAlways || len(got.Requests) != 1 {
		t.Errorf("under Halted: %+v, %v", got, err)
	}
	vm.Status.StateChangeRequests[0].Data = nil
	got, err = Decide(View{VM: vm, Now: now})
	if err != nil || got.Strategy != "" || len(got.Requests) != 0 {
		t.Errorf("a plain request under Halted: %+v, %v", got, err)
	}
}

func TestDecideRefuses(t *testing.T) {
	both := testVM(v1.RunStrategyAlways)
	both.Spec.Running = new(true)
	for name, vm := range map[string]*v1.VirtualMachine{
		"unknown": testVM("Sometimes"), "receiver": testVM(v1.RunStrategyWaitAsReceiver), "both": both,
	} {
		if _, err := Decide(View{VM: vm, Now: now}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestBackoff(t *testing.T) {
	var got []time.Duration
	for count := 1; count <= 7; count++ {
		got = append(got, waits.After(backoffBase, backoffMax, count)/time.Second)
	}
	if diff := cmp.Diff([]time.Duration{10, 20, 40, 80, 160, 300, 300}, got); diff != "" {
		t.Error(diff)
	}
	if waits.After(backoffBase, backoffMax, 1000) != backoffMax {
		t.Error("overflow")
	}
}

// A guest that was shut down to leave its node starts elsewhere at once, however often that happens; one that never ran
// waits.
func TestEvictionIsNoFailure(t *testing.T) {
	for ran, want := range map[bool]int32{true: 1, false: 2} {
		evicted := testVMI(v1.Failed)
		evicted.Status.Reason = names.ReasonPodTerminated
		if ran {
			evicted.Status.PhaseTransitionTimestamps = []v1.VirtualMachineInstancePhaseTransitionTimestamp{
				{Phase: v1.Running, PhaseTransitionTimestamp: metav1.NewTime(now.Add(-time.Minute))},
				{Phase: v1.Failed, PhaseTransitionTimestamp: metav1.NewTime(now)},
			}
		}
		vm := testVM(v1.RunStrategyAlways)
		vm.Status.StartFailure = &v1.VirtualMachineStartFailure{ConsecutiveFailCount: 1, LastFailedVMIUID: "before"}
		d, err := Decide(View{VM: vm, VMI: evicted, Now: now})
		if err != nil || d.Action != Delete || d.StartFailure == nil ||
			int32(d.StartFailure.ConsecutiveFailCount) != want {
			t.Errorf("ran %v: %+v, %v", ran, d, err)
		}
	}
}

// A guest whose node was lost starts elsewhere at once, however often that happens.
func TestNodeLossIsNoFailure(t *testing.T) {
	lost := testVMI(v1.Failed)
	lost.Status.Reason = vmicontroller.ReasonNodeUnresponsive
	earlier := &v1.VirtualMachineStartFailure{ConsecutiveFailCount: 1, LastFailedVMIUID: "before"}
	vm := testVM(v1.RunStrategyAlways)
	vm.Status.StartFailure = earlier
	d, err := Decide(View{VM: vm, VMI: lost, Now: now})
	if err != nil || d.Action != Delete || d.StartFailure == nil || d.StartFailure.ConsecutiveFailCount != 1 ||
		d.RequeueAfter != 0 {
		t.Errorf("%+v, %v", d, err)
	}
}
