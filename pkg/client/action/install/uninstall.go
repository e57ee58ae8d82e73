package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/names"
)

// guests are the kinds that mean somebody still uses virtkit, owners before what they own.
var guests = []schema.GroupVersionResource{
	{Group: "pool.kubevirt.io", Version: "v1beta1", Resource: "virtualmachinepools"},
	v1.GroupVersion.WithResource("virtualmachineinstancereplicasets"),
	v1.GroupVersion.WithResource("virtualmachines"),
	v1.GroupVersion.WithResource("virtualmachineinstances"),
	v1.GroupVersion.WithResource("virtualmachineinstancemigrations"),
}

// GuestsError is an uninstallation refused because virtual machines exist.
type GuestsError struct {
	// Names are "virtualmachine NAMESPACE/NAME".
	Names []string
}

func (e *GuestsError) Error() string {
	const shown = 5
	found := e.Names
	more := ""
	if len(found) > shown {
		more = fmt.Sprintf(" and %d more", len(found)-shown)
		found = found[:shown]
	}
	return fmt.Sprintf("there are virtual machines in this cluster: %s%s", strings.Join(found, ", "), more)
}

// UninstallOptions say how far to go.
type UninstallOptions struct {
	// DeleteVMs deletes all virtual machines first; without it their existence is a *GuestsError.
	DeleteVMs bool
	// Wait waits until the namespace and the definitions are gone.
	Wait bool
	// DryRun changes nothing: with DryRunServer the server is asked to delete each object and to keep it, with
	// DryRunClient it is only read.
	DryRun DryRun
}

// DryRun is how far a dry run goes; empty is none.
type DryRun string

const (
	DryRunClient DryRun = "client"
	DryRunServer DryRun = "server"
)

// Installed reports whether there is anything of an installation's objects.
func (i *Installer) Installed(ctx context.Context, objects []*unstructured.Unstructured) (bool, error) {
	for _, o := range objects {
		client, err := at(i.Client, o)
		if err != nil {
			return false, err
		}
		_, err = client.Get(ctx, o.GetName(), metav1.GetOptions{})
		if err == nil {
			return true, nil
		}
		if !apierrors.IsNotFound(err) {
			return false, err
		}
	}
	return false, nil
}

// Guests lists the virtual machines of the cluster, and what else is of their kinds, as "kind NAMESPACE/NAME".
// An instance that a VM owns is not listed beside it.
func (i *Installer) Guests(ctx context.Context) ([]string, error) {
	var all []string
	for _, resource := range guests {
		list, err := i.Client.Resource(resource).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue // no such definition
		}
		if err != nil {
			return nil, fmt.Errorf("look for virtual machines: %w", err)
		}
		for k := range list.Items {
			if o := &list.Items[k]; metav1.GetControllerOf(o) == nil {
				all = append(all, lower(o.GetKind())+" "+o.GetNamespace()+"/"+o.GetName())
			}
		}
	}
	return all, nil
}

// Uninstall removes the objects and everything that was made from them, in reverse order, and returns
// those that were there, as they were. It refuses with a *GuestsError while virtual machines exist. It
// may be repeated after a failure.
func (i *Installer) Uninstall(
	ctx context.Context, objects []*unstructured.Unstructured, opts UninstallOptions,
) ([]*unstructured.Unstructured, error) {
	if err := i.checkOurs(ctx); err != nil {
		return nil, err
	}
	found, err := i.Guests(ctx)
	if err != nil {
		return nil, err
	}
	ordered := removalOrder(objects)
	if len(found) > 0 {
		if !opts.DeleteVMs {
			return nil, &GuestsError{Names: found}
		}
	}
	if opts.DryRun != "" {
		return i.deleteAll(ctx, ordered, opts.DryRun)
	}
	if len(found) > 0 {
		if err := i.deleteGuests(ctx, ordered); err != nil {
			return nil, err
		}
	}
	i.progress("Deleting %d objects", len(objects))
	// The components keep their rights and their namespace until they have ended.
	running := slices.IndexFunc(ordered, func(o *unstructured.Unstructured) bool { return rank(o) > rankWorkload })
	deleted, err := i.deleteAll(ctx, ordered[:running], "")
	if err == nil && opts.Wait {
		err = i.waitEnded(ctx)
	}
	if err != nil {
		return deleted, err
	}
	rest, err := i.deleteAll(ctx, ordered[running:], "")
	deleted = append(deleted, rest...)
	if err == nil && opts.Wait {
		err = i.waitGone(ctx, deleted)
	}
	return deleted, errors.Join(err, i.cleanNodes(ctx))
}

// waitEnded waits until no pod of the components is left.
func (i *Installer) waitEnded(ctx context.Context) error {
	left := 0
	err := i.poll(ctx, func(ctx context.Context) (bool, error) {
		list, err := i.Client.Resource(pods).Namespace(names.Namespace).
			List(ctx, metav1.ListOptions{LabelSelector: names.LabelComponent})
		if err != nil {
			return false, err
		}
		if n := len(list.Items); n > 0 && n != left {
			i.progress("Waiting for %d pods to end", n)
		}
		left = len(list.Items)
		return left == 0, nil
	})
	if errors.Is(err, context.DeadlineExceeded) && left > 0 {
		return fmt.Errorf("%w waiting for %d pods of namespace %s to end", action.ErrTimeout, left, names.Namespace)
	}
	return err
}

const (
	rankAdmission = iota
	rankService
	rankWorkload
)

// cleanNodes takes off the nodes what virt-handler wrote on them.
func (i *Installer) cleanNodes(ctx context.Context) error {
	list, err := i.Client.Resource(nodes).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list nodes to remove their labels: %w", err)
	}
	for k := range list.Items {
		patch := nodePatch(&list.Items[k])
		if patch == nil {
			continue
		}
		name := list.Items[k].GetName()
		_, err := i.Client.Resource(nodes).
			Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove the labels of node %s: %w", name, err)
		}
	}
	return nil
}

// deleteGuests deletes all virtual machines and waits until they are gone, their guests shut down. Where no
// virt-controller runs that would see to it, it does that work itself; admission, which would refuse
// without its server, goes before.
func (i *Installer) deleteGuests(ctx context.Context, ordered []*unstructured.Unstructured) error {
	err := i.eachGuest(ctx, "delete", func(client dynamic.ResourceInterface, o *unstructured.Unstructured) error {
		return client.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
	})
	if err != nil {
		return err
	}
	var left []string
	err = i.poll(ctx, func(ctx context.Context) (bool, error) {
		orphaned, err := i.controllerGone(ctx)
		if err != nil {
			return false, err
		}
		if orphaned {
			if _, err := i.deleteAll(ctx, ordered[:admissions(ordered)], ""); err != nil {
				return false, err
			}
			if err := i.release(ctx); err != nil {
				return false, err
			}
		}
		now, err := i.Guests(ctx)
		if err != nil {
			return false, err
		}
		if len(now) > 0 && !slices.Equal(now, left) {
			i.progress("Waiting for %d virtual machines to end", len(now))
		}
		left = now
		return len(left) == 0, nil
	})
	if errors.Is(err, context.DeadlineExceeded) && len(left) > 0 {
		return fmt.Errorf("%w: %w", action.ErrTimeout, &GuestsError{Names: left})
	}
	return err
}

// controllerGone reports whether no virt-controller runs, nor is meant to start soon.
func (i *Installer) controllerGone(ctx context.Context) (bool, error) {
	d, err := i.Client.Resource(deployments).Namespace(names.Namespace).
		Get(ctx, names.VirtController, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return number(d, "availableReplicas") == 0, nil
}

// release deletes the launcher pods, and takes the finalizers off the deleted guests when no pod is left.
func (i *Installer) release(ctx context.Context) error {
	launchers, err := i.Client.Resource(pods).
		List(ctx, metav1.ListOptions{LabelSelector: names.LabelComponent + "=" + names.VirtLauncher})
	if err != nil {
		return err
	}
	for k := range launchers.Items {
		p := &launchers.Items[k]
		if p.GetDeletionTimestamp() != nil {
			continue
		}
		err := i.Client.Resource(pods).Namespace(p.GetNamespace()).Delete(ctx, p.GetName(), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete pod %s/%s: %w", p.GetNamespace(), p.GetName(), err)
		}
	}
	if len(launchers.Items) > 0 {
		return nil
	}
	return i.eachGuest(ctx, "release", func(client dynamic.ResourceInterface, o *unstructured.Unstructured) error {
		if len(o.GetFinalizers()) == 0 || o.GetDeletionTimestamp() == nil {
			return nil
		}
		_, err := client.Patch(ctx, o.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
			metav1.PatchOptions{FieldManager: FieldManager})
		return err
	})
}

// eachGuest does something to every virtual machine; verb says what, for errors. A machine that is gone by then, and a
// kind that the cluster does not have, are none.
func (i *Installer) eachGuest(
	ctx context.Context, verb string, do func(dynamic.ResourceInterface, *unstructured.Unstructured) error,
) error {
	for _, resource := range guests {
		list, err := i.Client.Resource(resource).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		for k := range list.Items {
			o := &list.Items[k]
			err := do(i.Client.Resource(resource).Namespace(o.GetNamespace()), o)
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s %s %s/%s: %w", verb, lower(o.GetKind()), o.GetNamespace(), o.GetName(), err)
			}
		}
	}
	return nil
}
