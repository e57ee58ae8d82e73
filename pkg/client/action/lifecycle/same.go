package lifecycle

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
)

// Looker reads machines.
type Looker interface {
	VM(ctx context.Context, namespace, name string) (*v1.VirtualMachine, error)
	VMI(ctx context.Context, namespace, name string) (*v1.VirtualMachineInstance, error)
}

// GoneError is that the object that was meant is not there any more. It is an action.ErrNotFound.
type GoneError struct {
	// Another says that another object has its name by now.
	Another bool
	// Err is what the server says; it may be nil.
	Err error
}

func (e *GoneError) Error() string {
	if e.Another {
		return "it is gone, and another of its name stays as it is"
	}
	return "it is gone"
}

// Is reports that the error is an action.ErrNotFound.
func (e *GoneError) Is(target error) bool { return target == action.ErrNotFound }

func (e *GoneError) Unwrap() error { return e.Err }

// Same returns a GoneError unless the machine of a target's name is the one that is meant, and its instance. It is
// asked right before a request that cannot name a UID itself. A target without a UID means any, and who may not read
// the machine is not kept from the request.
func Same(ctx context.Context, api Looker, t Target) error {
	if err := same(ctx, api, t); err != nil || t.InstanceUID == "" {
		return err
	}
	t.Instance, t.UID = true, t.InstanceUID
	return same(ctx, api, t)
}

func same(ctx context.Context, api Looker, t Target) error {
	if t.UID == "" {
		return nil
	}
	uid, err := uidOf(ctx, api, t)
	switch {
	case apierrors.IsForbidden(err):
		return nil
	case apierrors.IsNotFound(err):
		return &GoneError{Err: err}
	case err != nil:
		return fmt.Errorf("look at %s: %w", t, err)
	case uid != t.UID:
		return &GoneError{Another: true}
	}
	return nil
}

func uidOf(ctx context.Context, api Looker, t Target) (types.UID, error) {
	if t.Instance {
		vmi, err := api.VMI(ctx, t.Namespace, t.Name)
		if err != nil {
			return "", err
		}
		return vmi.UID, nil
	}
	vm, err := api.VM(ctx, t.Namespace, t.Name)
	if err != nil {
		return "", err
	}
	return vm.UID, nil
}
