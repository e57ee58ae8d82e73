package lifecyclecmd

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"
)

// A start right after a stop is asked for again until the guest is being ended, and no longer than it makes sense.
func TestStartAfterStop(t *testing.T) {
	running := apierrors.NewConflict(schema.GroupResource{Resource: "virtualmachine"}, "web",
		errors.New("VM is already running"))
	for name, test := range map[string]struct {
		// refusals is how often the start is refused; stops how often the VM is seen to be about to stop.
		refusals, stops int
		failure         error
		asked           int
		fails           bool
		most            time.Duration
	}{
		"at once":              {0, 0, nil, 1, false, 0},
		"it runs":              {100, 0, nil, 1, true, 0},
		"it is about to stop":  {3, 100, nil, 4, false, time.Second},
		"it was started again": {100, 2, nil, 3, true, time.Second},
		"it never stops":       {1000, 1000, nil, 0, true, stopPatience},
		"another error":        {0, 100, errors.New("no"), 1, true, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			asked, seen, begin := 0, 0, time.Now()
			err := afterStop(t.Context(), func(context.Context) error {
				if asked++; asked <= test.refusals {
					return running
				}
				return test.failure
			}, func(context.Context) bool { seen++; return seen <= test.stops })
			if (err != nil) != test.fails || test.asked > 0 && asked != test.asked || time.Since(begin) > test.most {
				t.Errorf("%s: %v, asked %d times in %s", name, err, asked, time.Since(begin))
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := afterStop(ctx, func(ctx context.Context) error { return errors.Join(ctx.Err(), running) },
			func(context.Context) bool { return true })
		if !apierrors.IsConflict(err) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("interrupted: %v", err)
		}
	})
}

func TestToBeStopped(t *testing.T) {
	vm := func(strategy v1.VirtualMachineRunStrategy) *v1.VirtualMachine {
		return &v1.VirtualMachine{Spec: v1.VirtualMachineSpec{RunStrategy: &strategy}}
	}
	running := &v1.VirtualMachineInstance{Status: v1.VirtualMachineInstanceStatus{Phase: v1.Running}}
	ended, leaving := running.DeepCopy(), running.DeepCopy()
	ended.Status.Phase = v1.Succeeded
	now := metav1.Now()
	leaving.DeletionTimestamp = &now
	for name, test := range map[string]struct {
		vm   *v1.VirtualMachine
		vmi  *v1.VirtualMachineInstance
		want bool
	}{
		"just stopped":   {vm(v1.RunStrategyHalted), running, true},
		"runs":           {vm(v1.RunStrategyAlways), running, false},
		"has ended":      {vm(v1.RunStrategyHalted), ended, false},
		"is being ended": {vm(v1.RunStrategyHalted), leaving, false},
		"on request":     {vm(v1.RunStrategyManual), running, false},
		"no strategy known": {
			&v1.VirtualMachine{Spec: v1.VirtualMachineSpec{Running: new(true), RunStrategy: new(v1.RunStrategyHalted)}},
			running, false,
		},
	} {
		if got := toBeStopped(test.vm, test.vmi); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
