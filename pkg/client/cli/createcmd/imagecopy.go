package createcmd

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/clone"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/vm/clones"
)

// imageCopy is what makes the disk of --image: a claim, or, for an image of another namespace, a VirtualMachineClone
// that makes the claim.
type imageCopy struct {
	claim *corev1.PersistentVolumeClaim
	clone *clonev1beta1.VirtualMachineClone
}

// name is that of the claim, and of the clone.
func (i *imageCopy) name() string {
	if i.clone != nil {
		return i.clone.Name
	}
	return i.claim.Name
}

// kind is what is created, for messages; group and resource are where.
func (i *imageCopy) kind() (kind, group, resource string) {
	if i.clone != nil {
		return "clone", clone.Group, client.Clones
	}
	return "claim", "/api/v1", client.Claims
}

// bare returns what is created as a user would write it.
func (i *imageCopy) bare() (*unstructured.Unstructured, error) {
	object := any(i.claim)
	if i.clone != nil {
		object = i.clone
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("write the manifest of %s: %w", i.name(), err)
	}
	unstructured.RemoveNestedField(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	if i.clone != nil {
		for _, empty := range [][]string{
			{"spec", "template"}, {"spec", "source", "apiGroup"}, {"spec", "target", "apiGroup"},
		} {
			unstructured.RemoveNestedField(content, empty...)
		}
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// manifestWith returns a list of the copy and the VM, in the order in which they are to be created.
func (i *imageCopy) manifestWith(vm *unstructured.Unstructured) (runtime.Object, error) {
	first, err := i.bare()
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "List", "items": []any{first.Object, vm.Object},
	}}, nil
}

// makeCopy creates what makes the disk of --image. undo takes the error of the VM: when the server has refused it, the
// copy is deleted again; when nobody knows, it is left and named.
func (o *VMOptions) makeCopy(
	ctx context.Context, c *client.Client, namespace string, i *imageCopy,
) (undo func(error) error, err error) {
	manifest, err := i.bare()
	if err != nil {
		return nil, err
	}
	// A VM that is there has a claim of that name, most likely, which is not to be deleted. Where it cannot be read the
	// server says so when the VM is made.
	err = c.Read(ctx, client.YAMLPath(client.VMs, namespace, o.VM.Name), nil, &metav1.PartialObjectMetadata{})
	if err == nil {
		resource := schema.GroupResource{Group: v1.GroupVersion.Group, Resource: client.VMs}
		return nil, apierrors.NewAlreadyExists(resource, o.VM.Name)
	}
	kind, group, resource := i.kind()
	created, err := c.CreateObject(ctx, group, namespace, resource, manifest, o.DryRun == cli.DryRunServer)
	switch {
	case apierrors.IsAlreadyExists(err):
		what := "it"
		if i.clone != nil {
			what = "claim " + i.name() + ", with which the clone goes, or one that has failed with `kubectl delete " +
				"vmclone " + i.name() + o.Factory.InNamespace(namespace) + "`"
		}
		return nil, copyExists(kind, namespace, i.name(), what)
	case err != nil:
		return nil, fmt.Errorf("create %s %s/%s: %w", kind, namespace, i.name(), err)
	}
	uid := created.GetUID()
	return func(why error) error {
		left := fmt.Errorf("%s %s/%s, which was made for it, is left", kind, namespace, i.name())
		var status apierrors.APIStatus
		switch {
		case o.DryRun == cli.DryRunServer:
			return nil
		case !errors.As(why, &status) || status.Status().Code < 400 || status.Status().Code >= 500:
			return left
		}
		ctx := context.WithoutCancel(ctx)
		err := c.DeleteObject(ctx, group, namespace, resource, i.name(),
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil && !apierrors.IsNotFound(err) {
			return errors.Join(left, err)
		}
		if i.clone != nil {
			return removeCloned(ctx, c, namespace, i.name(), uid)
		}
		return nil
	}, nil
}

// removeCloned deletes the claim that a clone has made already, without which the clone ends, too.
func removeCloned(ctx context.Context, c *client.Client, namespace, name string, of types.UID) error {
	var claim metav1.PartialObjectMetadata
	path := "/api/v1/namespaces/" + namespace + "/" + client.Claims + "/" + name
	if err := c.Read(ctx, path, nil, &claim); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("whether claim %s/%s is left cannot be said: %w", namespace, name, err)
	}
	if !clones.Made(&metav1.ObjectMeta{UID: of}, &claim) {
		return nil
	}
	err := c.DeleteObject(ctx, "/api/v1", namespace, client.Claims, name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &claim.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("claim %s/%s, which was made for it, is left: %w", namespace, name, err)
	}
	return nil
}

// copyExists is the error of a disk that is there; what is to be deleted for another.
func copyExists(kind, namespace, name, what string) error {
	return fmt.Errorf("%s %s/%s is there already; choose another --name, or delete %s, if no VM needs what is on it",
		kind, namespace, name, what)
}
