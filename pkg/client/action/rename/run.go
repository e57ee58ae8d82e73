package rename

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/vm/identity"
)

// DefaultInterval is how often to look whether the old VM is gone.
const DefaultInterval = 200 * time.Millisecond

// UnfinishedError is a rename that has begun and is not over. The same again goes on with it.
type UnfinishedError struct {
	Request Request
	// Last is the step that was to be done.
	Last Kind
	Err  error
}

func (e *UnfinishedError) Error() string {
	r := e.Request
	return fmt.Sprintf("VM %s/%s is not renamed yet (%s): %v; `virtctl rename %[2]s %[5]s -n %[1]s` goes on",
		r.Namespace, r.Name, e.Last, e.Err, r.To)
}

func (e *UnfinishedError) Unwrap() error { return e.Err }

// Run renames the VM and returns it under its new name. How long it may take is the context's to say.
func (n *Renamer) Run(ctx context.Context, interval time.Duration) (*v1.VirtualMachine, error) {
	begun := false
	for {
		v, err := n.look(ctx)
		if err == nil {
			err = n.notAllowed(ctx)
		}
		if err != nil {
			return nil, n.failed(ctx, begun, "look", err)
		}
		step := Next(v)
		switch {
		case step.Refusal != nil && begun:
			return nil, n.failed(ctx, begun, "refused", step.Refusal)
		case step.Refusal != nil:
			return nil, step.Refusal
		case step.Kind == Done:
			return v.New, nil
		}
		begun = begun || v.New != nil
		switch err := n.apply(ctx, v, step); {
		case err == nil && step.Kind == Finish:
			return n.api.VM(ctx, n.request.Namespace, n.request.To)
		case err == nil && step.Kind != Wait && step.Kind != Discard:
			begun = true
			continue
		case err != nil && !changed(err):
			return nil, n.failed(ctx, begun, step.Kind, err)
		}
		select {
		case <-ctx.Done():
			return nil, n.failed(ctx, begun, step.Kind, ctx.Err())
		case <-time.After(interval):
		}
	}
}

// Try asks the server to check the rename in a dry run.
func (n *Renamer) Try(ctx context.Context, p *Plan) error {
	if !p.Goes {
		return nil // it has begun, and goes on
	}
	r := n.request
	if _, err := n.api.CreateVM(ctx, r.Namespace, p.VM, true); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create VM %s/%s: %w", r.Namespace, r.To, err)
	}
	orphan := metav1.DeletePropagationOrphan
	err := n.api.DeleteObject(ctx, vmGroup, r.Namespace, client.VMs, r.Name,
		metav1.DeleteOptions{PropagationPolicy: &orphan, DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return fmt.Errorf("delete VM %s/%s: %w", r.Namespace, r.Name, err)
	}
	return nil
}

// changed reports an error that somebody else was there at the same time: it is looked at again.
func changed(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

func (n *Renamer) failed(ctx context.Context, begun bool, last Kind, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = action.ErrTimeout
	}
	if !begun {
		return err
	}
	return &UnfinishedError{Request: n.request, Last: last, Err: err}
}

// apply carries a step out.
func (n *Renamer) apply(ctx context.Context, v View, step Step) error {
	r := n.request
	switch step.Kind {
	case Mark:
		return n.merge(ctx, vmResource, &v.Old.ObjectMeta, map[string]any{"metadata": map[string]any{
			"annotations": map[string]any{identity.RenamedTo: r.To},
		}})
	case Create:
		if _, err := n.api.CreateVM(ctx, r.Namespace, step.VM, false); err != nil {
			return fmt.Errorf("create VM %s/%s: %w", r.Namespace, r.To, err)
		}
	case Discard:
		return n.remove(ctx, v.New)
	case Remove:
		return n.remove(ctx, v.Old)
	case Lend, Adopt:
		for _, c := range step.Changes {
			if err := n.change(ctx, c); err != nil {
				return err
			}
		}
	case Finish:
		return n.finish(ctx, v.New, step.RunStrategy)
	}
	return nil
}

// vmResource is what VMs are, to merge.
var vmResource = Resource{Group: vmGroup, Name: client.VMs}

// remove deletes the very version of a VM that was looked at, and nothing of what belongs to it.
func (n *Renamer) remove(ctx context.Context, vm *v1.VirtualMachine) error {
	orphan := metav1.DeletePropagationOrphan
	err := n.api.DeleteObject(ctx, vmGroup, vm.Namespace, client.VMs, vm.Name, metav1.DeleteOptions{
		PropagationPolicy: &orphan,
		Preconditions:     &metav1.Preconditions{UID: &vm.UID, ResourceVersion: &vm.ResourceVersion},
	})
	if err != nil {
		return fmt.Errorf("delete VM %s/%s: %w", vm.Namespace, vm.Name, err)
	}
	return nil
}

func (n *Renamer) change(ctx context.Context, c Change) error {
	meta := map[string]any{"ownerReferences": c.Owners}
	if len(c.Labels) > 0 {
		meta["labels"] = c.Labels
	}
	return n.merge(ctx, c.Dependent.Resource, &c.Dependent.Meta, map[string]any{"metadata": meta})
}

func (n *Renamer) finish(ctx context.Context, vm *v1.VirtualMachine, strategy v1.VirtualMachineRunStrategy) error {
	patch := map[string]any{"metadata": map[string]any{"annotations": map[string]any{
		identity.RenamingFrom: nil, identity.RenamedFrom: n.request.Name,
	}}}
	if strategy != "" {
		patch["spec"] = map[string]any{"runStrategy": strategy}
	}
	return n.merge(ctx, vmResource, &vm.ObjectMeta, patch)
}

// merge patches the version of an object that was looked at.
func (n *Renamer) merge(ctx context.Context, resource Resource, object *metav1.ObjectMeta, patch map[string]any) error {
	meta := patch["metadata"].(map[string]any)
	meta["resourceVersion"], meta["uid"] = object.ResourceVersion, object.UID
	data, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode the change of %s %s: %w", resource.Name, object.Name, err)
	}
	_, err = n.api.MergeObject(ctx, resource.Group, object.Namespace, resource.Name, object.Name, "", data, false)
	if err != nil {
		return fmt.Errorf("change %s/%s: %w", resource.Name, object.Name, err)
	}
	return nil
}
