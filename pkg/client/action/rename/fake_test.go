package rename

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
)

// cluster is an API server with a garbage collector that works after each write, and a kill of the client that asks.
type cluster struct {
	vms     map[string]*v1.VirtualMachine
	vmis    map[string]bool
	objects map[string]*metav1.ObjectMeta // by resource/name
	version int
	writes  int
	// kill is the write at which the client is killed, -1 for none; after says that the write was done.
	kill  int
	after bool
	// late is a collector that orphans nothing, since it has not seen yet who depends.
	late bool
	// erased are the objects that were collected.
	erased []string
	// denied are verbs and resources that the user may not, "patch/secrets".
	denied []string
	// plain is a cluster without CDI.
	plain bool
	// before runs before a write.
	before func(verb, what string)
	// check looks at the cluster after each write.
	check func()
}

var errKilled = errors.New("killed")

func newCluster(vms ...*v1.VirtualMachine) *cluster {
	c := &cluster{
		vms: map[string]*v1.VirtualMachine{}, vmis: map[string]bool{}, objects: map[string]*metav1.ObjectMeta{},
		version: 10, kill: -1,
	}
	for _, vm := range vms {
		c.vms[vm.Name] = vm
	}
	return c
}

func (c *cluster) add(dependents ...Dependent) {
	for i := range dependents {
		d := &dependents[i]
		d.Meta.ResourceVersion = "1"
		c.objects[d.Resource.Name+"/"+d.Meta.Name] = &d.Meta
	}
}

func missing(resource, name string) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name)
}

// write is one that may be killed.
func (c *cluster) write(verb, what string, do func() error) error {
	if c.before != nil {
		c.before(verb, what)
	}
	n := c.writes
	c.writes++
	if n == c.kill && !c.after {
		return errKilled
	}
	err := do()
	c.collect()
	if c.check != nil {
		c.check()
	}
	if n == c.kill {
		return errKilled
	}
	return err
}

// collect is the garbage collector, and virt-controller's finalizer.
func (c *cluster) collect() {
	live := map[types.UID]bool{}
	for name, vm := range c.vms {
		if vm.DeletionTimestamp == nil {
			live[vm.UID] = true
			continue
		}
		delete(c.vms, name)
		for _, o := range c.objects {
			if !c.late {
				o.OwnerReferences = slices.DeleteFunc(o.OwnerReferences, ownedBy(vm.UID))
			}
		}
	}
	for key, o := range c.objects {
		owners := slices.DeleteFunc(slices.Clone(o.OwnerReferences), func(o metav1.OwnerReference) bool {
			return !live[o.UID]
		})
		if len(owners) == 0 && len(o.OwnerReferences) > 0 {
			delete(c.objects, key)
			c.erased = append(c.erased, key)
		}
		o.OwnerReferences = owners
	}
}

func (c *cluster) next() string {
	c.version++
	return strconv.Itoa(c.version)
}

func (c *cluster) VM(_ context.Context, _, name string) (*v1.VirtualMachine, error) {
	if vm := c.vms[name]; vm != nil {
		return vm.DeepCopy(), nil
	}
	return nil, missing(client.VMs, name)
}

func (c *cluster) VMI(_ context.Context, _, name string) (*v1.VirtualMachineInstance, error) {
	if c.vmis[name] {
		return &v1.VirtualMachineInstance{}, nil
	}
	return nil, missing(client.VMIs, name)
}

func (c *cluster) VMList(context.Context, string, metav1.ListOptions) (*v1.VirtualMachineList, error) {
	list := &v1.VirtualMachineList{}
	for _, vm := range c.vms {
		list.Items = append(list.Items, *vm.DeepCopy())
	}
	return list, nil
}

func (c *cluster) Read(_ context.Context, at string, _ url.Values, into any) error {
	if at == DataVolumes.Group {
		if c.plain {
			return missing("datavolumes", "")
		}
		return nil
	}
	resource := path.Base(at)
	if slices.Contains(c.denied, "list/"+resource) {
		return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no"))
	}
	list := into
	switch out := list.(type) {
	case *metav1.PartialObjectMetadataList:
		for key, o := range c.objects {
			if strings.HasPrefix(key, resource+"/") {
				out.Items = append(out.Items, metav1.PartialObjectMetadata{ObjectMeta: *o.DeepCopy()})
			}
		}
	case *corev1.ServiceList:
	}
	return nil
}

func (c *cluster) ReadMetadata(_ context.Context, at string) (*metav1.PartialObjectMetadata, error) {
	resource, name := path.Base(path.Dir(at)), path.Base(at)
	if o := c.objects[resource+"/"+name]; o != nil {
		return &metav1.PartialObjectMetadata{ObjectMeta: *o.DeepCopy()}, nil
	}
	return nil, missing(resource, name)
}

func (c *cluster) May(_ context.Context, what authorizationv1.ResourceAttributes) (bool, error) {
	return !slices.Contains(c.denied, what.Verb+"/"+what.Resource), nil
}

func (*cluster) User(context.Context) (string, error) { return "jane", nil }

func (c *cluster) CreateVM(_ context.Context, _ string, vm *v1.VirtualMachine, dryRun bool,
) (*v1.VirtualMachine, error) {
	if dryRun {
		return vm, nil
	}
	return vm, c.write("create", vm.Name, func() error {
		if c.vms[vm.Name] != nil {
			return apierrors.NewAlreadyExists(schema.GroupResource{Resource: client.VMs}, vm.Name)
		}
		stored := vm.DeepCopy()
		stored.ResourceVersion = c.next()
		stored.UID = types.UID("uid-" + vm.Name + "-" + stored.ResourceVersion)
		c.vms[vm.Name] = stored
		return nil
	})
}

func (c *cluster) MergeObject(
	_ context.Context, _, _, resource, name, _ string, patch []byte, _ bool,
) (*unstructured.Unstructured, error) {
	return nil, c.write("patch", resource+"/"+name, func() error {
		if resource == client.VMs {
			vm := c.vms[name]
			if vm == nil {
				return missing(resource, name)
			}
			return c.merge(&vm.ObjectMeta, vm, patch)
		}
		o := c.objects[resource+"/"+name]
		if o == nil {
			return missing(resource, name)
		}
		full := &metav1.PartialObjectMetadata{ObjectMeta: *o}
		err := c.merge(&full.ObjectMeta, full, patch)
		*o = full.ObjectMeta
		return err
	})
}

// merge applies a patch as an API server does: null removes, and the version must be the one of now.
func (c *cluster) merge(meta *metav1.ObjectMeta, object any, patch []byte) error {
	var change struct {
		Metadata struct {
			ResourceVersion string
			UID             types.UID
			Annotations     map[string]*string
			OwnerReferences *[]metav1.OwnerReference
			Labels          map[string]string
		}
		Spec struct{ RunStrategy v1.VirtualMachineRunStrategy }
	}
	if err := json.Unmarshal(patch, &change); err != nil {
		return err
	}
	m := change.Metadata
	if m.ResourceVersion != meta.ResourceVersion || m.UID != meta.UID {
		return apierrors.NewConflict(schema.GroupResource{}, meta.Name, errors.New("changed"))
	}
	for key, value := range m.Annotations {
		if value == nil {
			delete(meta.Annotations, key)
		} else {
			metav1.SetMetaDataAnnotation(meta, key, *value)
		}
	}
	for key, value := range m.Labels {
		metav1.SetMetaDataLabel(meta, key, value)
	}
	if m.OwnerReferences != nil {
		meta.OwnerReferences = *m.OwnerReferences
	}
	if vm, ok := object.(*v1.VirtualMachine); ok && change.Spec.RunStrategy != "" {
		vm.Spec.RunStrategy = &change.Spec.RunStrategy
	}
	meta.ResourceVersion = c.next()
	return nil
}

func (c *cluster) DeleteObject(_ context.Context, _, _, resource, name string, opts metav1.DeleteOptions) error {
	if len(opts.DryRun) > 0 {
		return nil
	}
	return c.write("delete", resource+"/"+name, func() error {
		vm := c.vms[name]
		switch p := opts.Preconditions; {
		case vm == nil:
			return missing(resource, name)
		case p == nil || *p.UID != vm.UID || *p.ResourceVersion != vm.ResourceVersion:
			return apierrors.NewConflict(schema.GroupResource{}, name, errors.New("changed"))
		case opts.PropagationPolicy == nil || *opts.PropagationPolicy != metav1.DeletePropagationOrphan:
			return apierrors.NewBadRequest("what belongs to the VM would be erased")
		}
		vm.DeletionTimestamp = &metav1.Time{}
		return nil
	})
}
