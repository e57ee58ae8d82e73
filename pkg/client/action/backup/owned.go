package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/vm/claims"
)

// A claim of an import belongs to the run that its annotation names. A run that goes on with the claims of one that was
// killed writes its own name there; the other, if it lives, loses them, and neither deletes what it has not got any
// more. The label that lets a run go on is taken off before the VM is made.

// errTaken is the error of a claim that is another run's now, or was made anew by others.
var errTaken = errors.New("another import has taken it, or it was made anew; nothing of it is changed")

// take makes a claim of a run that was killed this run's.
func (i *importing) take(ctx context.Context, there *corev1.PersistentVolumeClaim) error {
	if i.DryRun {
		i.created = append(i.created, there)
		return nil
	}
	taken, err := i.change(ctx, there, map[string]any{"annotations": map[string]any{AnnotationRun: i.run}})
	if err != nil {
		return fmt.Errorf("go on with claim %s/%s: %w", there.Namespace, there.Name, err)
	}
	i.created = append(i.created, taken)
	return nil
}

// finish takes the label off a claim that has its disk.
func (i *importing) finish(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		now, err := i.own(ctx, claim)
		if err != nil {
			return err
		}
		_, err = i.change(ctx, now, map[string]any{"labels": map[string]any{LabelImport: nil}})
		return err
	})
	if err != nil {
		return fmt.Errorf("claim %s/%s has its disk: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

// change merges metadata into a claim that is as it was read. Else the error is a conflict.
func (i *importing) change(
	ctx context.Context, claim *corev1.PersistentVolumeClaim, metadata map[string]any,
) (*corev1.PersistentVolumeClaim, error) {
	metadata["uid"], metadata["resourceVersion"] = claim.UID, claim.ResourceVersion
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return nil, err
	}
	changed, err := i.c.MergeObject(ctx, coreAPI, claim.Namespace, client.Claims, claim.Name, "", patch, false)
	if err != nil {
		return nil, err
	}
	out := &corev1.PersistentVolumeClaim{}
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(changed.Object, out)
}

// own reads a claim of this run. Errors: errTaken, and those of reading.
func (i *importing) own(ctx context.Context, claim *corev1.PersistentVolumeClaim,
) (*corev1.PersistentVolumeClaim, error) {
	now := &corev1.PersistentVolumeClaim{}
	if err := i.c.Read(ctx, claimPath(claim), nil, now); err != nil {
		return nil, err
	}
	if now.Annotations[AnnotationRun] != i.run || claim.UID != "" && now.UID != claim.UID {
		return nil, errTaken
	}
	return now, nil
}

// users returns the VMs and VMIs of the namespace that have claims as volumes, by claim.
func (i *importing) users(ctx context.Context) (map[string]string, error) {
	namespace, out := i.made.VM.Namespace, map[string]string{}
	note := func(user string, volumes []v1.Volume) {
		for n := range volumes {
			out[claims.Name(&volumes[n])] = user
		}
	}
	vms, err := i.c.VMList(ctx, namespace, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("look whether a VM has the claims: %w", err)
	}
	vmis, err := i.c.VMIList(ctx, namespace, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("look whether a VM has the claims: %w", err)
	}
	for n := range vms.Items {
		if template := vms.Items[n].Spec.Template; template != nil {
			note("VM "+vms.Items[n].Name, template.Spec.Volumes)
		}
	}
	for n := range vmis.Items {
		note("VMI "+vmis.Items[n].Name, vmis.Items[n].Spec.Volumes)
	}
	delete(out, "")
	return out, nil
}

// remove deletes the claims that are this run's and no VM's, and names them and those that are left.
func (i *importing) remove(ctx context.Context) error {
	if len(i.created) == 0 {
		return nil
	}
	interrupted := ctx.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleting)
	defer cancel()
	users, unknown := i.users(ctx)
	var all error
	var gone []string
	for _, claim := range i.created {
		err := unknown
		if user := users[claim.Name]; user != "" {
			err = fmt.Errorf("%s has it as a volume", user)
		}
		if err == nil {
			err = i.removeClaim(ctx, claim)
		}
		switch {
		case err == nil:
			gone = append(gone, claim.Name)
		case !apierrors.IsNotFound(err):
			err = fmt.Errorf("claim %s/%s is left: %w", claim.Namespace, claim.Name, err)
			if all = errors.Join(all, err); interrupted {
				i.Note(err.Error()) // nobody prints the errors of what was interrupted
			}
		}
	}
	if len(gone) > 0 {
		i.Note(fmt.Sprintf("the claims that were made for VM %s/%s are deleted: %s", i.made.VM.Namespace,
			i.made.VM.Name, list(gone)))
	}
	return all
}

// removeClaim deletes a claim as long as it is this run's.
func (i *importing) removeClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		now, err := i.own(ctx, claim)
		if err != nil {
			return err
		}
		return i.c.DeleteObject(ctx, coreAPI, now.Namespace, client.Claims, now.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &now.UID, ResourceVersion: &now.ResourceVersion},
		})
	})
}
