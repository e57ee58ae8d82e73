package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"
)

// oneVM answers with a VM of this status, or with that there is none.
type oneVM v1.VirtualMachinePrintableStatus

func (status oneVM) VM(_ context.Context, _, name string) (*v1.VirtualMachine, error) {
	if status == "" {
		return nil, apierrors.NewNotFound(vms, name)
	}
	vm := &v1.VirtualMachine{}
	if strategy, isNew := strings.CutPrefix(string(status), "new, "); isNew {
		vm.Spec.RunStrategy = (*v1.VirtualMachineRunStrategy)(&strategy)
		return vm, nil
	}
	if request, asked := strings.CutPrefix(string(status), "asked, "); asked {
		vm.Status.PrintableStatus = v1.VirtualMachineStatusStopped
		vm.Spec.RunStrategy = (*v1.VirtualMachineRunStrategy)(&request)
		vm.Generation, vm.Status.ObservedGeneration = 3, 2
		if request == string(v1.RunStrategyManual) {
			vm.Status.StateChangeRequests = []v1.VirtualMachineStateChangeRequest{{Action: v1.StartRequest}}
		}
		return vm, nil
	}
	vm.Status.PrintableStatus = v1.VirtualMachinePrintableStatus(status)
	return vm, nil
}

func TestNotRunning(t *testing.T) {
	f := NewFactory("kubectl virt", NoStreams(), func(string) string { return "" })
	f.Flags.Overrides.Context.Namespace = "default"
	f.Flags.Overrides.ClusterInfo.Server = "https://127.0.0.1:1"
	absent := apierrors.NewNotFound(schema.GroupResource{Group: "kubevirt.io", Resource: "virtualmachineinstances"},
		"demo")
	broken := errors.New("broken")
	refused := fmt.Errorf("migrate: %w", &apierrors.StatusError{
		ErrStatus: metav1.Status{
			Code: 409, Reason: metav1.StatusReasonConflict, Message: "VirtualMachine default/demo: VM is not running",
		},
	})
	for _, tt := range []struct {
		what   string
		vm     oneVM
		target Target
		err    error
		want   string
	}{
		{
			"stopped", "Stopped",
			Target{Namespace: "default", Name: "demo"},
			absent,
			"VM default/demo: it is stopped; start it with `kubectl virt start demo`",
		},
		{
			"elsewhere", "Stopped",
			Target{Namespace: "shop", Name: "demo"},
			absent,
			"start it with `kubectl virt start demo -n shop`",
		},
		{
			"held up", "Provisioning",
			Target{Namespace: "default", Name: "demo"},
			absent,
			"its status is Provisioning; `kubectl virt why demo` says",
		},
		{
			"stopped, just made", "new, Halted",
			Target{Namespace: "default", Name: "demo"},
			absent,
			"it is stopped; start it with",
		},
		{
			"just made", "new, Always",
			Target{Namespace: "default", Name: "demo"},
			absent,
			"it does not run yet: it is so new that",
		},
		{"no VM", "", Target{Namespace: "default", Name: "demo"}, absent, `"demo" not found`},
		{
			"refused", "Stopped",
			Target{Namespace: "default", Name: "demo"},
			refused,
			"migrate: VirtualMachine default/demo: VM is not running; start it with `kubectl virt start demo`",
		},
		{
			"refused, held up", "Provisioning",
			Target{Namespace: "default", Name: "demo"},
			refused,
			"VM is not running; `kubectl virt why demo` says what blocks it",
		},
		{
			"refused, asked to start a moment ago", "asked, Always",
			Target{Namespace: "default", Name: "demo"},
			refused,
			"VM is not running; it is being started, and `kubectl virt why demo` says what it waits for",
		},
		{
			"refused, start requested", "asked, Manual",
			Target{Namespace: "shop", Name: "demo"},
			refused,
			"VM is not running; it is being started, and `kubectl virt why demo -n shop` says what it waits for",
		},
		{
			"refused, new strategy", "asked, RerunOnFailure",
			Target{Namespace: "default", Name: "demo"},
			refused,
			"VM is not running; it is being started, and",
		},
		{
			"refused, changed and halted", "asked, Halted",
			Target{Namespace: "default", Name: "demo"},
			refused,
			"VM is not running; start it with",
		},
		{
			"starting", "Starting",
			Target{Namespace: "default", Name: "demo"},
			absent,
			"VM default/demo: it does not run yet; it is being started, and `kubectl virt why demo` says what it " +
				"waits for",
		},
		{"refused, no VM", "", Target{Namespace: "default", Name: "demo"}, refused, refused.Error()},
		{
			"another object", "Stopped",
			Target{Namespace: "default", Name: "demo"},
			apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, "x"), `nodes "x" not found`,
		},
		{
			"instance asked for", "Stopped",
			Target{Namespace: "default", Name: "demo", Instance: true},
			absent,
			absent.Error(),
		},
		{"another error", "Stopped", Target{Namespace: "default", Name: "demo"}, broken, "broken"},
	} {
		err := f.NotRunning(t.Context(), tt.vm, tt.target, tt.err)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q in it", tt.what, err, tt.want)
		}
		if code := ExitCode(err); tt.vm == "Stopped" && !tt.target.Instance && tt.what != "another object" &&
			code != ExitFailure {
			t.Errorf("%s: exit code %d", tt.what, code)
		}
	}
}
