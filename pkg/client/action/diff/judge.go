package diff

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/rollout"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// judge adds to head when each changed field of an object takes effect for the present guest.
func judge(ctx context.Context, api API, head *Object, live, then map[string]any) error {
	guest := rollout.Guest{}
	vmi, err := api.VMI(ctx, head.Namespace, head.Name)
	switch {
	case err == nil && !vmi.IsFinal():
		guest.Instance, head.Running = vmi, true
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("look at the instance: %w", err)
	}
	changes := rollout.Compare(visible(live), visible(then))
	edit, doubt := rollout.Edit{Before: live, After: then}, ""
	if head.Running && len(changes) > 0 && head.Kind == v1.VirtualMachineGroupVersionKind.Kind {
		if guest.Staged, err = staged(ctx, api); err != nil {
			if !apierrors.IsForbidden(err) {
				return fmt.Errorf("read spec.configuration.vmRolloutStrategy of the KubeVirt resource: %w", err)
			}
			doubt = "unless vmRolloutStrategy is Stage, which your account may not read"
		}
		if edit.Was, err = expanded(ctx, api, head.Namespace, live); err != nil {
			return err
		}
		if edit.Is, err = expanded(ctx, api, head.Namespace, then); err != nil {
			return err
		}
		if guest.Claims, err = targets(ctx, api, head.Namespace, guest.Instance, edit.Is, then); err != nil {
			return err
		}
	}
	for _, v := range guest.Verdicts(changes, edit) {
		if doubt != "" && v.Follows() {
			v.Note = joined(v.Note, doubt)
		}
		head.Changes = append(head.Changes,
			Change{Path: v.Path, Effect: v.Effect, Note: v.Note, Before: v.Before, After: v.After})
	}
	return nil
}

// targets returns the claims that exist of those to which a VM would have the disks of its guest copied, by name; nil
// when none is to be, the account may not read them, or the VM has one made (dataVolumeTemplates).
func targets(
	ctx context.Context, api API, namespace string, vmi *v1.VirtualMachineInstance, is *v1.VirtualMachineInstanceSpec,
	vm map[string]any,
) (map[string]*corev1.PersistentVolumeClaim, error) {
	spec, _ := vm["spec"].(map[string]any)
	if is == nil || spec["updateVolumesStrategy"] != string(v1.UpdateVolumesStrategyMigration) {
		return nil, nil
	}
	then := *vmi
	then.Spec.Volumes = is.Volumes
	var found map[string]*corev1.PersistentVolumeClaim
	for _, m := range volumemigration.Moves(&then) {
		if madeByVM(spec, m.To) {
			return nil, nil
		}
		claim := &corev1.PersistentVolumeClaim{}
		err := api.Read(ctx, "/api/v1/namespaces/"+namespace+"/persistentvolumeclaims/"+m.To, nil, claim)
		switch {
		case apierrors.IsForbidden(err):
			return nil, nil
		case err != nil && !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("read PersistentVolumeClaim %s: %w", m.To, err)
		}
		if found == nil {
			found = map[string]*corev1.PersistentVolumeClaim{}
		}
		if err == nil {
			found[m.To] = claim
		}
	}
	return found, nil
}

// madeByVM reports a claim that is made by one of the VM's dataVolumeTemplates.
func madeByVM(spec map[string]any, claim string) bool {
	templates, _ := spec["dataVolumeTemplates"].([]any)
	for _, t := range templates {
		fields, _ := t.(map[string]any)
		metadata, _ := fields["metadata"].(map[string]any)
		if metadata["name"] == claim {
			return true
		}
	}
	return false
}

func joined(note, more string) string {
	if note == "" {
		return more
	}
	return note + "; " + more
}

// staged reports whether the installation does not change guests that run.
func staged(ctx context.Context, api API) (bool, error) {
	list, err := api.KubeVirtList(ctx)
	if err != nil {
		return false, err
	}
	for i := range list.Items {
		if s := list.Items[i].Spec.Configuration.VMRolloutStrategy; s != nil && *s == v1.VMRolloutStrategyStage {
			return true, nil
		}
	}
	return false, nil
}

// expanded returns the spec of a VM's template with its instance type and preference written out; nil when the server
// cannot do that now, or the account may not ask it.
func expanded(
	ctx context.Context, api API, namespace string, vm map[string]any,
) (*v1.VirtualMachineInstanceSpec, error) {
	spec, _ := vm["spec"].(map[string]any)
	if spec["instancetype"] == nil && spec["preference"] == nil {
		return templateSpec(vm)
	}
	data, err := json.Marshal(vm)
	if err != nil {
		return nil, err
	}
	out, err := api.Expand(ctx, namespace, data)
	switch {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err), apierrors.IsBadRequest(err):
		return nil, nil // what it refers to may come later; then the rules of the fields alone say it
	case err != nil:
		return nil, fmt.Errorf("write out instance type and preference: %w", err)
	case out.Spec.Template == nil:
		return nil, nil
	}
	return &out.Spec.Template.Spec, nil
}

func templateSpec(vm map[string]any) (*v1.VirtualMachineInstanceSpec, error) {
	data, err := json.Marshal(vm)
	if err != nil {
		return nil, err
	}
	typed := &v1.VirtualMachine{}
	if err := json.Unmarshal(data, typed); err != nil {
		return nil, fmt.Errorf("read spec.template: %w", err)
	}
	if typed.Spec.Template == nil {
		return nil, nil
	}
	return &typed.Spec.Template.Spec, nil
}
