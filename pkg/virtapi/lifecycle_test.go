package virtapi

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/identity"
)

func machine(strategy v1.VirtualMachineRunStrategy, requests ...v1.VirtualMachineStateChangeRequest,
) *v1.VirtualMachine {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "vm"}}
	switch strategy {
	case "true", "false":
		vm.Spec.Running = new(strategy == "true")
	default:
		vm.Spec.RunStrategy = &strategy
	}
	vm.Status.StateChangeRequests = requests
	return vm
}

func instance(phase v1.VirtualMachineInstancePhase) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "vm", UID: "u"}}
	vmi.Status.Phase = phase
	vmi.Spec.TerminationGracePeriodSeconds = new(int64(30))
	return vmi
}

// leaving is an instance that is being deleted.
func leaving() *v1.VirtualMachineInstance {
	vmi := instance(v1.Running)
	vmi.DeletionTimestamp = &metav1.Time{}
	return vmi
}

// describe is a change in words.
func describe(c change) string {
	var words []string
	if c.grace != nil {
		words = append(words, "grace")
	}
	if c.strategy != "" {
		words = append(words, string(c.strategy))
	}
	if c.setRequests {
		words = append(words, "requests")
		for _, r := range c.requests {
			word := string(r.Action)
			if r.Data[v1.StartRequestDataPausedKey] == v1.StartRequestDataPausedTrue {
				word += "(paused)"
			}
			words = append(words, word)
			if r.UID != nil {
				words = append(words, string(*r.UID))
			}
		}
	}
	if c.killPods {
		words = append(words, "kill")
	}
	return strings.Join(words, " ")
}

func TestLifecycle(t *testing.T) {
	starts := v1.VirtualMachineStateChangeRequest{Action: v1.StartRequest}
	stops := v1.VirtualMachineStateChangeRequest{Action: v1.StopRequest, UID: new(instance("").UID)}
	running, succeeded, failed := instance(v1.Running), instance(v1.Succeeded), instance(v1.Failed)
	startIt := func(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) (change, error) {
		return start(vm, vmi, &v1.StartOptions{})
	}
	stopIt := func(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) (change, error) {
		return stop(vm, vmi, &v1.StopOptions{})
	}
	stopIn := func(grace int64) func(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) (change, error) {
		return func(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) (change, error) {
			return stop(vm, vmi, &v1.StopOptions{GracePeriod: &grace})
		}
	}
	restartIt := func(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) (change, error) {
		return restart(vm, vmi, &v1.RestartOptions{})
	}
	restartIn := func(grace int64) func(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) (change, error) {
		return func(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) (change, error) {
			return restart(vm, vmi, &v1.RestartOptions{GracePeriodSeconds: &grace})
		}
	}
	both := machine(v1.RunStrategyAlways)
	both.Spec.Running = new(true)
	heir := machine(v1.RunStrategyHalted)
	heir.Annotations = map[string]string{identity.RenamingFrom: `{"name":"old","uid":"o","of":"h"}`}
	damaged := machine(v1.RunStrategyManual)
	damaged.Annotations = map[string]string{identity.RenamingFrom: "?"}

	const isRunning, notRunning, underway = "409 VM is already running", "409 VM is not running",
		"409 unable to complete request: stop/start already underway"
	for name, tc := range map[string]struct {
		do   func(*v1.VirtualMachine, *v1.VirtualMachineInstance) (change, error)
		vm   *v1.VirtualMachine
		vmi  *v1.VirtualMachineInstance
		want string // words, or code and a part of the message
	}{
		"start Halted":                {startIt, machine(v1.RunStrategyHalted), nil, "Always"},
		"start Halted while it stops": {startIt, machine(v1.RunStrategyHalted), leaving(), "Always"},
		"start Halted while it runs":  {startIt, machine(v1.RunStrategyHalted), running, isRunning},
		"start running: false":        {startIt, machine("false"), nil, "Always"},
		"start Always": {
			startIt, machine(v1.RunStrategyAlways), nil, "409 Always does not support manual start requests",
		},
		"start Always that runs":  {startIt, machine(v1.RunStrategyAlways), running, isRunning},
		"start Manual":            {startIt, machine(v1.RunStrategyManual), nil, "requests Start"},
		"start Manual that runs":  {startIt, machine(v1.RunStrategyManual), instance(v1.Scheduling), isRunning},
		"start Manual that ended": {startIt, machine(v1.RunStrategyManual), succeeded, "requests Stop u Start"},
		"start Manual while it stops": {
			startIt, machine(v1.RunStrategyManual, stops), leaving(), "requests Stop u Start",
		},
		"start Manual twice": {startIt, machine(v1.RunStrategyManual, starts), nil, underway},
		"start Manual on a lost node": {
			startIt, machine(v1.RunStrategyManual), instance(v1.Unknown), "requests Stop u Start",
		},
		"start RerunOnFailure": {startIt, machine(v1.RunStrategyRerunOnFailure), nil, "requests Start"},
		"start RerunOnFailure that ended": {
			startIt, machine(v1.RunStrategyRerunOnFailure), succeeded, "requests Stop u Start",
		},
		"start RerunOnFailure that failed": {
			startIt, machine(v1.RunStrategyRerunOnFailure), failed,
			"409 RerunOnFailure does not support starting VM from failed state",
		},
		"start Once":    {startIt, machine(v1.RunStrategyOnce), nil, "409 Once does not support manual start requests"},
		"start of both": {startIt, both, nil, "409 "},
		"start amid a rename": {
			startIt, heir, nil,
			"409 VM is being renamed from old; `virtctl rename old vm -n default` finishes that",
		},
		"start amid a damaged rename": {startIt, damaged, nil, "409 VM is being renamed from"},
		"start paused": {func(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) (change, error) {
			return start(vm, vmi, &v1.StartOptions{Paused: true})
		}, machine(v1.RunStrategyHalted), nil, "requests Start(paused)"},
		"start Manual paused": {func(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) (change, error) {
			return start(vm, vmi, &v1.StartOptions{Paused: true})
		}, machine(v1.RunStrategyManual), succeeded, "requests Stop u Start(paused)"},

		"stop Always":                     {stopIt, machine(v1.RunStrategyAlways), running, "Halted"},
		"stop Always without instance":    {stopIt, machine(v1.RunStrategyAlways), nil, "Halted"},
		"stop running: true":              {stopIt, machine("true"), running, "Halted"},
		"stop Always with grace":          {stopIn(5), machine(v1.RunStrategyAlways), running, "grace Halted"},
		"stop Always with the same grace": {stopIn(30), machine(v1.RunStrategyAlways), running, "Halted"},
		"stop Halted":                     {stopIt, machine(v1.RunStrategyHalted), nil, notRunning},
		"stop Halted that ended":          {stopIt, machine(v1.RunStrategyHalted), succeeded, notRunning},
		"stop Halted again": {
			stopIt, machine(v1.RunStrategyHalted), leaving(),
			"409 Halted only supports manual stop requests with a shorter graceperiod",
		},
		"stop Halted sooner":            {stopIn(0), machine(v1.RunStrategyHalted), leaving(), "grace"},
		"stop Halted later":             {stopIn(60), machine(v1.RunStrategyHalted), leaving(), "409 Halted only"},
		"stop Manual":                   {stopIt, machine(v1.RunStrategyManual), running, "requests Stop u"},
		"stop Manual with grace":        {stopIn(0), machine(v1.RunStrategyManual), running, "grace requests Stop u"},
		"stop Manual that is not there": {stopIt, machine(v1.RunStrategyManual), nil, notRunning},
		"stop Manual that ended":        {stopIt, machine(v1.RunStrategyManual), failed, notRunning},
		"stop Manual before it starts":  {stopIt, machine(v1.RunStrategyManual, starts), nil, "requests"},
		"stop Manual amid a restart": {
			stopIt, machine(v1.RunStrategyManual, stops, starts), leaving(), "requests Stop u",
		},
		"stop RerunOnFailure":              {stopIt, machine(v1.RunStrategyRerunOnFailure), running, "requests Stop u"},
		"stop RerunOnFailure that failed":  {stopIt, machine(v1.RunStrategyRerunOnFailure), failed, "requests Stop u"},
		"stop RerunOnFailure amid backoff": {stopIt, machine(v1.RunStrategyRerunOnFailure, starts), nil, "requests"},
		"stop RerunOnFailure that ended":   {stopIt, machine(v1.RunStrategyRerunOnFailure), succeeded, notRunning},
		"stop Once":                        {stopIt, machine(v1.RunStrategyOnce), running, "Halted"},
		"stop Once that ended":             {stopIt, machine(v1.RunStrategyOnce), succeeded, "Halted"},
		"stop with a negative grace":       {stopIn(-1), machine(v1.RunStrategyAlways), running, "400 gracePeriod"},
		"stop with an endless grace": {
			stopIn(1 << 62), machine(v1.RunStrategyAlways), running, "400 gracePeriod must be at most",
		},
		"stop of both": {stopIt, both, running, "409 "},

		"restart Always":         {restartIt, machine(v1.RunStrategyAlways), running, "requests Stop u Start"},
		"restart Manual":         {restartIt, machine(v1.RunStrategyManual), running, "requests Stop u Start"},
		"restart RerunOnFailure": {restartIt, machine(v1.RunStrategyRerunOnFailure), running, "requests Stop u Start"},
		"restart at once":        {restartIn(0), machine(v1.RunStrategyAlways), running, "requests Stop u Start kill"},
		"restart soon": {
			restartIn(5), machine(v1.RunStrategyAlways), running, "400 For force restart, only gracePeriod=0",
		},
		"restart yesterday": {restartIn(-1), machine(v1.RunStrategyAlways), running, "400 gracePeriod"},
		"restart Halted": {
			restartIt, machine(v1.RunStrategyHalted), running,
			"409 run strategy Halted does not support manual restart requests",
		},
		"restart Once": {
			restartIt, machine(v1.RunStrategyOnce), running, "409 run strategy Once does not",
		},
		"restart what is not there": {restartIt, machine(v1.RunStrategyAlways), nil, notRunning},
		"restart amid a restart":    {restartIt, machine(v1.RunStrategyManual, stops, starts), running, underway},
		"restart of both":           {restartIt, both, running, "409 "},
		"restart what is about to go": {
			restartIt, machine(v1.RunStrategyManual, stops), leaving(), "requests Stop u Start",
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.vm.DeepCopy()
			c, err := tc.do(tc.vm, tc.vmi)
			if diff := cmp.Diff(before, tc.vm); diff != "" {
				t.Errorf("the VM was changed: %s", diff)
			}
			code, text, _ := strings.Cut(tc.want, " ")
			switch {
			case code == "409" && (!apierrors.IsConflict(err) || !strings.Contains(err.Error(), text)),
				code == "400" && (!apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), text)):
				t.Errorf("got %v, %q", err, describe(c))
			case code != "409" && code != "400" && (err != nil || describe(c) != tc.want):
				t.Errorf("got %v, %q; want %q", err, describe(c), tc.want)
			}
		})
	}
}
