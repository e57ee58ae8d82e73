package rename

import (
	"context"
	"fmt"
	"net/url"
	"path"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/identity"
)

// API has the methods of a client that the package calls.
type API interface {
	VM(ctx context.Context, namespace, name string) (*v1.VirtualMachine, error)
	VMI(ctx context.Context, namespace, name string) (*v1.VirtualMachineInstance, error)
	VMList(ctx context.Context, namespace string, opts metav1.ListOptions) (*v1.VirtualMachineList, error)
	Read(ctx context.Context, path string, query url.Values, into any) error
	ReadMetadata(ctx context.Context, path string) (*metav1.PartialObjectMetadata, error)
	May(ctx context.Context, what authorizationv1.ResourceAttributes) (bool, error)
	User(ctx context.Context) (string, error)
	CreateVM(ctx context.Context, namespace string, vm *v1.VirtualMachine, dryRun bool) (*v1.VirtualMachine, error)
	MergeObject(ctx context.Context, group, namespace, resource, name, subresource string, patch []byte, dryRun bool,
	) (*unstructured.Unstructured, error)
	DeleteObject(ctx context.Context, group, namespace, resource, name string, opts metav1.DeleteOptions) error
}

// Renamer renames one VM.
type Renamer struct {
	api     API
	request Request
	// may has whether the user may change objects of a resource, as far as it was asked.
	may map[Resource]bool
	// missing are the rights that the user lacks, as far as it is known.
	missing []Right
}

// New makes a Renamer.
func New(api API, r Request) *Renamer {
	return &Renamer{api: api, request: r, may: map[Resource]bool{}}
}

// look reads what Next wants to know. The old VM is read before its instance: an instance that comes about later
// changes the VM, too, and whoever removes the VM that was read here finds it changed.
func (n *Renamer) look(ctx context.Context) (View, error) {
	r := n.request
	v := View{Request: r}
	var err error
	if v.Old, err = optional(n.api.VM(ctx, r.Namespace, r.Name)); err != nil {
		return v, fmt.Errorf("look at VM %s/%s: %w", r.Namespace, r.Name, err)
	}
	if v.New, err = optional(n.api.VM(ctx, r.Namespace, r.To)); err != nil {
		return v, fmt.Errorf("look at VM %s/%s: %w", r.Namespace, r.To, err)
	}
	for name, runs := range map[string]**v1.VirtualMachineInstance{r.Name: &v.OldRuns, r.To: &v.NewRuns} {
		if *runs, err = optional(n.api.VMI(ctx, r.Namespace, name)); err != nil {
			return v, fmt.Errorf("look at VMI %s/%s: %w", r.Namespace, name, err)
		}
	}
	if v.Old != nil {
		if v.Rivals, err = n.rivals(ctx, v.Old); err != nil {
			return v, err
		}
	}
	if v.Old != nil || v.New != nil {
		v.Dependents, err = n.dependents(ctx, v)
	}
	return v, err
}

func optional[T any](object *T, err error) (*T, error) {
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return object, nil
}

// rivals returns the VMs of other names than the new one that wait for the place of old.
func (n *Renamer) rivals(ctx context.Context, old *v1.VirtualMachine) ([]string, error) {
	list, err := n.api.VMList(ctx, old.Namespace, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list VirtualMachines: %w", err)
	}
	var out []string
	for i := range list.Items {
		vm := &list.Items[i]
		renaming, err := identity.RenamingOf(vm)
		if err == nil && renaming != nil && renaming.UID == old.UID && vm.Name != n.request.To {
			out = append(out, vm.Name)
		}
	}
	return out, nil
}

// dependents returns the objects that belong to one of the VMs.
func (n *Renamer) dependents(ctx context.Context, v View) ([]Dependent, error) {
	old, successor := v.uids()
	var out []Dependent
	add := func(resource Resource, objects ...metav1.PartialObjectMetadata) error {
		for i := range objects {
			meta := &objects[i].ObjectMeta
			if meta.DeletionTimestamp != nil || !belongs(meta, old, successor, v.Request.Name) {
				continue
			}
			may, err := n.mayChange(ctx, resource)
			if err != nil {
				return err
			}
			out = append(out, Dependent{Resource: resource, Meta: *meta, Fixed: !may})
		}
		return nil
	}
	for _, resource := range []Resource{Claims, DataVolumes, Revisions, Services} {
		list, err := n.list(ctx, resource)
		if err != nil {
			return nil, err
		}
		if err := add(resource, list...); err != nil {
			return nil, err
		}
	}
	for _, ref := range named(v) {
		resource := map[string]Resource{"Secret": Secrets, "ConfigMap": ConfigMaps}[ref.Kind]
		found, err := n.api.ReadMetadata(ctx, path.Join(n.path(resource), ref.Name))
		switch {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
			continue // it stays, as nobody's
		case err != nil:
			return nil, fmt.Errorf("look at %s %s: %w", ref.Kind, ref.Name, err)
		}
		if err := add(resource, *found); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (n *Renamer) path(resource Resource) string {
	return path.Join(resource.Group, "namespaces", n.request.Namespace, resource.Name)
}

// list reads the objects of a resource; none where the cluster does not have it, or of what may stay as nobody's. That
// the user may not read data is noted, and keeps the VM from being renamed.
func (n *Renamer) list(ctx context.Context, resource Resource) ([]metav1.PartialObjectMetadata, error) {
	var list metav1.PartialObjectMetadataList
	err := n.api.Read(ctx, n.path(resource), nil, &list)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err) && !resource.Data:
		return nil, nil
	case apierrors.IsForbidden(err): // which is also the answer where the cluster does not have it
		served, err := n.served(ctx, resource.Group)
		if err == nil && served {
			n.lack(Right{"list", group(resource.Group), resource.Name})
		}
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("list %s: %w", resource.Name, err)
	}
	return list.Items, nil
}

// named returns the Secrets and ConfigMaps that the VM refers to, each once.
func named(v View) []claims.Reference {
	vm := v.Old
	if vm == nil {
		vm = v.New
	}
	if vm.Spec.Template == nil {
		return nil
	}
	spec := &vm.Spec.Template.Spec
	var out []claims.Reference
	add := func(ref claims.Reference) {
		known := func(o claims.Reference) bool { return o.Kind == ref.Kind && o.Name == ref.Name }
		if (ref.Kind == "Secret" || ref.Kind == "ConfigMap") && ref.Name != "" && !slices.ContainsFunc(out, known) {
			out = append(out, ref)
		}
	}
	for i := range spec.Volumes {
		for _, ref := range claims.References(&spec.Volumes[i]) {
			add(ref)
		}
	}
	for _, credential := range spec.AccessCredentials {
		if key := credential.SSHPublicKey; key != nil && key.Source.Secret != nil {
			add(claims.Reference{Kind: "Secret", Name: key.Source.Secret.SecretName})
		}
		if password := credential.UserPassword; password != nil && password.Source.Secret != nil {
			add(claims.Reference{Kind: "Secret", Name: password.Source.Secret.SecretName})
		}
	}
	return out
}
