package volume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// StartAPI has the methods of a client that Start and Cancel call.
type StartAPI interface {
	VM(ctx context.Context, namespace, name string) (*v1.VirtualMachine, error)
	VMI(ctx context.Context, namespace, name string) (*v1.VirtualMachineInstance, error)
	CreateTyped(ctx context.Context, group, resource string, object, into metav1.Object, dryRun bool) error
	DeleteObject(ctx context.Context, group, namespace, resource, name string, opts metav1.DeleteOptions) error
	Patch(ctx context.Context, resource, namespace, name string, kind types.PatchType, patch []byte, dryRun bool,
		into runtime.Object) error
}

const (
	// patches is how often a VM is patched that others change meanwhile.
	patches = 10
	// cleanup is how long claims are removed that are of no use, also after an interrupt.
	cleanup = 15 * time.Second
)

// Start makes the new claims, and has the VM name them in one patch. When it fails, the claims that it has made are
// removed, unless the VM may name them; left says what became of them.
func (m *Moving) Start(ctx context.Context, api StartAPI, dryRun bool) (left []string, err error) {
	var made []*corev1.PersistentVolumeClaim
	for i := range m.Moves {
		claim := m.Moves[i].To
		stored := &corev1.PersistentVolumeClaim{}
		if err := api.CreateTyped(ctx, "/api/v1", client.Claims, claim, stored, dryRun); err != nil {
			if unanswered(err) && !dryRun {
				left = append(left, fmt.Sprintf("claim %s may have been created", claim.Name))
			}
			err = fmt.Errorf("make claim %s for volume %s: %w", claim.Name, m.Moves[i].Volume, err)
			return append(left, withdraw(ctx, api, made, dryRun)...), err
		}
		made = append(made, stored)
		m.Moves[i].To = stored
	}
	err = m.patch(ctx, api, dryRun)
	switch {
	case err == nil:
		return nil, nil
	case unanswered(err) && !dryRun:
		return []string{fmt.Sprintf("the copy of disks of VM %s/%s may have been requested, so claims that were made "+
			"are kept: %s; %s takes it back", m.VM.Namespace, m.VM.Name, namesOf(made), m.back)}, err
	}
	return withdraw(ctx, api, made, dryRun), err
}

// unanswered reports an error after which the server may have carried a request out.
func unanswered(err error) bool {
	var answer apierrors.APIStatus
	return !errors.As(err, &answer) || answer.Status().Code >= http.StatusInternalServerError
}

func namesOf(made []*corev1.PersistentVolumeClaim) string {
	var all []string
	for _, claim := range made {
		all = append(all, claim.Name)
	}
	return strings.Join(all, ", ")
}

// withdraw removes the claims that were made, and says what became of them.
func withdraw(ctx context.Context, api StartAPI, made []*corev1.PersistentVolumeClaim, dryRun bool) []string {
	if dryRun {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	var out []string
	for _, claim := range made {
		uid := claim.UID
		err := api.DeleteObject(ctx, "/api/v1", claim.Namespace, client.Claims, claim.Name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		switch {
		case err == nil:
			out = append(out, fmt.Sprintf("claim %s, which was made for it, is removed again", claim.Name))
		case !apierrors.IsNotFound(err):
			out = append(out, fmt.Sprintf("claim %s was made for it, and could not be removed: %v", claim.Name, err))
		}
	}
	return out
}

// patch has the VM name the new claims. A VM that has changed since it was read is read again; what matters of it must
// be as it was.
func (m *Moving) patch(ctx context.Context, api StartAPI, dryRun bool) error {
	var err error
	for range patches {
		var patch []byte
		if patch, err = m.request(); err != nil {
			return err
		}
		into := &v1.VirtualMachine{}
		err = api.Patch(ctx, client.VMs, m.VM.Namespace, m.VM.Name, types.JSONPatchType, patch, dryRun, into)
		if err == nil {
			m.VM = into
			return nil
		}
		err = fmt.Errorf("change VM %s/%s: %w", m.VM.Namespace, m.VM.Name, err)
		if !apierrors.IsConflict(err) {
			return err
		}
		if again := m.again(ctx, api); again != nil {
			return again
		}
	}
	return err
}

// again reads a VM that has changed.
func (m *Moving) again(ctx context.Context, api StartAPI) error {
	vm, err := api.VM(ctx, m.VM.Namespace, m.VM.Name)
	if err != nil {
		return err
	}
	for _, move := range m.Moves {
		var now *v1.Volume
		if vm.Spec.Template != nil {
			now = hotplug.Volume(&vm.Spec.Template.Spec, move.Volume)
		}
		if now == nil || claims.Name(now) != move.From.Name {
			return apierrors.NewConflict(v1.Resource(client.VMs), vm.Name,
				fmt.Errorf("volume %s was changed meanwhile", move.Volume))
		}
	}
	m.VM = vm
	return nil
}

// request returns the patch of the VM.
func (m *Moving) request() ([]byte, error) {
	var list []volumemigration.Exchanged
	for _, move := range m.Moves {
		list = append(list, volumemigration.Exchanged{Volume: move.Volume, To: move.To.Name})
	}
	patch, err := json.Marshal(volumemigration.Exchange(m.VM, list))
	if err != nil {
		return nil, fmt.Errorf("encode the patch: %w", err)
	}
	return patch, nil
}

// ErrStill is that no disk of a VM is being copied.
var ErrStill = errors.New("no disk is being copied")

// Cancel has a VM name the claims again from which its disks were to be copied, and returns what it takes back. It
// returns ErrStill when there is nothing to take back.
func Cancel(ctx context.Context, api StartAPI, namespace, name string, dryRun bool) (*v1.VolumeUpdateState, error) {
	var err error
	for range patches {
		var vm *v1.VirtualMachine
		if vm, err = api.VM(ctx, namespace, name); err != nil {
			return nil, err
		}
		vmi, missing := api.VMI(ctx, namespace, name)
		switch {
		case apierrors.IsNotFound(missing):
			vmi = nil
		case missing != nil:
			return nil, missing
		}
		state := volumemigration.Away(vm, vmi)
		if state == nil {
			return nil, fmt.Errorf("VM %s: %w", name, ErrStill)
		}
		vm.Status.VolumeUpdateState = state
		var ops []json.RawMessage
		text := volumemigration.Revert(vm)
		if text == "" {
			return state, nil // it names them, and the copy is being cancelled
		}
		guard, failed := json.Marshal(volumemigration.Unchanged(vm))
		if failed = errors.Join(failed, json.Unmarshal([]byte(text), &ops)); failed != nil {
			return nil, fmt.Errorf("encode the patch: %w", failed)
		}
		patch, failed := json.Marshal(slices.Insert(ops, 0, json.RawMessage(guard)))
		if failed != nil {
			return nil, fmt.Errorf("encode the patch: %w", failed)
		}
		err = api.Patch(ctx, client.VMs, namespace, name, types.JSONPatchType, patch, dryRun, &v1.VirtualMachine{})
		if err == nil {
			return state, nil
		}
		err = fmt.Errorf("change VM %s/%s: %w", namespace, name, err)
		if !apierrors.IsConflict(err) {
			return nil, err
		}
	}
	return nil, err
}
