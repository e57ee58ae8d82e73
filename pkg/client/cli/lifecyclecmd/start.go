package lifecyclecmd

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// How long a start waits for the stop before it, and how often it asks.
const (
	stopPatience = 10 * time.Second
	stopInterval = 200 * time.Millisecond
)

// send asks for the verb. A start right after a stop is refused, in KubeVirt's words that the VM is running, until
// virt-controller has begun to end the guest: a start waits for that moment.
func (o *Options) send(ctx context.Context, c *client.Client, r *request) error {
	t := r.target
	if o.Verb == lifecycle.MigrateCancel {
		var err error
		r.cancelled, err = lifecycle.Cancel(ctx, c, t, o.options())
		return err
	}
	ask := func(ctx context.Context) error { return lifecycle.Do(ctx, c, o.Verb, t, o.options()) }
	if o.Verb != lifecycle.Start {
		return ask(ctx)
	}
	return afterStop(ctx, ask, func(ctx context.Context) bool {
		vm, err := c.VM(ctx, t.Namespace, t.Name)
		if err != nil {
			return false
		}
		vmi, err := c.VMI(ctx, t.Namespace, t.Name)
		return err == nil && toBeStopped(vm, vmi)
	})
}

// afterStop asks, and asks again as long as that is a conflict with a stop that has only been asked for.
func afterStop(ctx context.Context, ask func(context.Context) error, stops func(context.Context) bool) error {
	err := ask(ctx)
	if !apierrors.IsConflict(err) || !stops(ctx) {
		return err
	}
	// What ends this is in err, be it the answer or the last refusal.
	_ = wait.PollUntilContextTimeout(ctx, stopInterval, stopPatience, false, func(ctx context.Context) (bool, error) {
		again := ask(ctx)
		if ctx.Err() == nil {
			err = again
		}
		return !apierrors.IsConflict(again) || !stops(ctx), nil
	})
	return err
}

// toBeStopped reports a VM that is not to run, whose guest nobody has begun to end.
func toBeStopped(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) bool {
	strategy, err := vm.RunStrategy()
	return err == nil && strategy == v1.RunStrategyHalted && life.Staying(vmi)
}
