package runstrategy

import (
	"encoding/json"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func text(t *testing.T, of any) string {
	t.Helper()
	out, err := json.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestSet(t *testing.T) {
	running := v1.VirtualMachineSpec{Running: new(true)}
	manual := v1.VirtualMachineSpec{RunStrategy: new(v1.RunStrategyManual)}
	for _, test := range []struct {
		spec     v1.VirtualMachineSpec
		strategy v1.VirtualMachineRunStrategy
		want     string
		patch    string
	}{
		{running, v1.RunStrategyHalted, `{"running":false,"template":null}`, `{"running":false}`},
		{running, v1.RunStrategyAlways, `{"running":true,"template":null}`, `{"running":true}`},
		{
			running, v1.RunStrategyManual,
			`{"runStrategy":"Manual","template":null}`, `{"runStrategy":"Manual","running":null}`,
		},
		{manual, v1.RunStrategyHalted, `{"runStrategy":"Halted","template":null}`, `{"runStrategy":"Halted"}`},
		{manual, v1.RunStrategyAlways, `{"runStrategy":"Always","template":null}`, `{"runStrategy":"Always"}`},
		{
			v1.VirtualMachineSpec{},
			v1.RunStrategyHalted,
			`{"runStrategy":"Halted","template":null}`, `{"runStrategy":"Halted"}`,
		},
		{ // what admission refuses comes out right
			v1.VirtualMachineSpec{Running: new(true), RunStrategy: new(v1.RunStrategyOnce)},
			v1.RunStrategyHalted,
			`{"running":false,"template":null}`, `{"running":false}`,
		},
	} {
		before := text(t, test.spec)
		if got := text(t, Patch(&test.spec, test.strategy)); got != test.patch {
			t.Errorf("%s, %s: patch %s, want %s", before, test.strategy, got, test.patch)
		}
		if after := text(t, test.spec); after != before {
			t.Errorf("Patch has changed the spec: %s, before %s", after, before)
		}
		if Set(&test.spec, test.strategy); text(t, test.spec) != test.want {
			t.Errorf("%s, %s: %s, want %s", before, test.strategy, text(t, test.spec), test.want)
		}
	}
}

func TestStop(t *testing.T) {
	for strategy, want := range map[v1.VirtualMachineRunStrategy]string{
		v1.RunStrategyAlways:         `{"Strategy":"Halted","Requests":null}`,
		v1.RunStrategyOnce:           `{"Strategy":"Halted","Requests":null}`,
		v1.RunStrategyHalted:         `{"Strategy":"","Requests":null}`,
		v1.RunStrategyManual:         `{"Strategy":"","Requests":[{"action":"Stop","uid":"guest"}]}`,
		v1.RunStrategyRerunOnFailure: `{"Strategy":"","Requests":[{"action":"Stop","uid":"guest"}]}`,
	} {
		got := Stop(strategy, "guest")
		if text(t, got) != want {
			t.Errorf("%s: %s, want %s", strategy, text(t, got), want)
		}
		if got.None() != (strategy == v1.RunStrategyHalted) {
			t.Errorf("%s: None is %v", strategy, got.None())
		}
	}
}

func TestRequested(t *testing.T) {
	type request = v1.VirtualMachineStateChangeRequest
	for name, test := range map[string]struct {
		requests    []request
		start, stop bool
	}{
		"nothing":   {},
		"a start":   {[]request{{Action: v1.StartRequest}}, true, false},
		"a stop":    {[]request{{Action: v1.StopRequest}}, false, true},
		"a restart": {[]request{{Action: v1.StopRequest}, {Action: v1.StartRequest}}, true, true},
	} {
		vm := &v1.VirtualMachine{Status: v1.VirtualMachineStatus{StateChangeRequests: test.requests}}
		if start, stop := Requested(vm, v1.StartRequest), Requested(vm, v1.StopRequest); start != test.start ||
			stop != test.stop {
			t.Errorf("%s: start %t, stop %t", name, start, stop)
		}
	}
}
