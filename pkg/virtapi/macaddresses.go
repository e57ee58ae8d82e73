package virtapi

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/identity"
	"github.com/virtkit/virtkit/pkg/vm/macaddress"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

const byMAC = "mac"

// macHolders finds the VM, or the VMI that no VM owns, that has a MAC address on a network, from watches of both; of
// each object it keeps the interfaces only. What is found is read from the API before a request is refused for it: the
// caches may be old. What they do not have yet virt-controller finds, before a guest starts with it.
type macHolders struct {
	vms, vmis cache.SharedIndexInformer
	vm        func(ctx context.Context, namespace, name string) (*v1.VirtualMachine, error)
	vmi       func(ctx context.Context, namespace, name string) (*v1.VirtualMachineInstance, error)
}

func newMACHolders(client rest.Interface, m *machines) (*macHolders, error) {
	follow := func(resource, selector string, object runtime.Object) (cache.SharedIndexInformer, error) {
		watch := cache.NewFilteredListWatchFromClient(client, resource, metav1.NamespaceAll,
			func(options *metav1.ListOptions) { options.LabelSelector = selector })
		informer := cache.NewSharedIndexInformerWithOptions(watch, object, cache.SharedIndexInformerOptions{
			Indexers: cache.Indexers{byMAC: macKeys},
		})
		if err := informer.SetTransform(onlyInterfaces); err != nil {
			return nil, fmt.Errorf("follow %s: %w", resource, err)
		}
		return informer, nil
	}
	h := &macHolders{vm: m.vm, vmi: m.vmi}
	var err error
	if h.vms, err = follow(virtualMachines, "", &v1.VirtualMachine{}); err != nil {
		return nil, err
	}
	h.vmis, err = follow(virtualMachineInstances, "!"+v1.VirtualMachineLabel, &v1.VirtualMachineInstance{})
	return h, err
}

// macKeys indexes the objects of both caches.
func macKeys(object any) (keys []string, err error) {
	for _, claim := range claimsOf(object) {
		keys = append(keys, claim.Key())
	}
	return keys, nil
}

func claimsOf(object any) []macaddress.Claim {
	switch object := object.(type) {
	case *v1.VirtualMachine:
		return macaddress.OfVM(object)
	case *v1.VirtualMachineInstance:
		return macaddress.OfVMI(object)
	}
	return nil
}

// onlyInterfaces keeps of a VM and a VMI what its claims are made of.
func onlyInterfaces(object any) (any, error) {
	switch object := object.(type) {
	case *v1.VirtualMachine:
		out := &v1.VirtualMachine{ObjectMeta: shortMeta(&object.ObjectMeta)}
		if object.Spec.Template != nil {
			out.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{Spec: wires(&object.Spec.Template.Spec)}
		}
		return out, nil
	case *v1.VirtualMachineInstance:
		out := &v1.VirtualMachineInstance{ObjectMeta: shortMeta(&object.ObjectMeta), Spec: wires(&object.Spec)}
		for _, nic := range object.Status.Interfaces {
			out.Status.Interfaces = append(out.Status.Interfaces,
				v1.VirtualMachineInstanceNetworkInterface{Name: nic.Name, MAC: nic.MAC})
		}
		return out, nil
	}
	return object, nil
}

func shortMeta(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	out := metav1.ObjectMeta{
		Namespace: meta.Namespace, Name: meta.Name, UID: meta.UID, ResourceVersion: meta.ResourceVersion,
	}
	if text, ok := meta.Annotations[macaddress.Annotation]; ok {
		out.Annotations = map[string]string{macaddress.Annotation: text}
	}
	return out
}

func wires(spec *v1.VirtualMachineInstanceSpec) (out v1.VirtualMachineInstanceSpec) {
	devices := &spec.Domain.Devices
	out.Networks = spec.Networks
	out.Domain.Devices.AutoattachPodInterface = devices.AutoattachPodInterface
	for i := range devices.Interfaces {
		nic := &devices.Interfaces[i]
		out.Domain.Devices.Interfaces = append(out.Domain.Devices.Interfaces, v1.Interface{
			Name: nic.Name, MacAddress: nic.MacAddress, State: nic.State,
			InterfaceBindingMethod: nic.InterfaceBindingMethod, Binding: nic.Binding,
		})
	}
	return out
}

// run follows both kinds until the context ends.
func (h *macHolders) run(ctx context.Context) {
	done := make(chan struct{})
	go func() { defer close(done); h.vmis.RunWithContext(ctx) }()
	h.vms.RunWithContext(ctx)
	<-done
}

// holder returns who else has an address, "" for nobody, and the name of its interface. namespace and name are those of
// the VM or VMI that claims it; instead is the name of the VM whose place it takes.
func (h *macHolders) holder(
	ctx context.Context, claim *macaddress.Claim, namespace, name, instead string,
) (who, nic string, err error) {
	for _, informer := range []cache.SharedIndexInformer{h.vms, h.vmis} {
		objects, err := informer.GetIndexer().ByIndex(byMAC, claim.Key())
		if err != nil {
			return "", "", fmt.Errorf("find who has the MAC address %s: %w", claim.MAC, err)
		}
		for _, object := range objects {
			meta := object.(metav1.Object)
			if meta.GetNamespace() == namespace && (meta.GetName() == name || meta.GetName() == instead) {
				continue
			}
			found, kind, err := h.read(ctx, object)
			switch {
			case apierrors.IsNotFound(err):
				continue
			case err != nil:
				return "", "", fmt.Errorf("read who has the MAC address %s: %w", claim.MAC, err)
			}
			for _, theirs := range found {
				if theirs.Key() == claim.Key() {
					return fmt.Sprintf("%s %s/%s", kind, meta.GetNamespace(), meta.GetName()), theirs.Interface, nil
				}
			}
		}
	}
	return "", "", nil
}

// read returns the claims that an object of the caches has now.
func (h *macHolders) read(ctx context.Context, object any) (claims []macaddress.Claim, kind string, err error) {
	if vmi, is := object.(*v1.VirtualMachineInstance); is {
		found, err := h.vmi(ctx, vmi.Namespace, vmi.Name)
		if err != nil || found.IsFinal() {
			return nil, "", err
		}
		return macaddress.OfVMI(found), "VirtualMachineInstance", nil
	}
	vm := object.(*v1.VirtualMachine)
	found, err := h.vm(ctx, vm.Namespace, vm.Name)
	if err != nil {
		return nil, "", err
	}
	return macaddress.OfVM(found), "VM", nil
}

// validateMACs refuses MAC addresses that another VM of the cluster has on the same network, and a record of addresses
// that cannot be read. old is nil when the VM is made. What components make is not asked: virt-controller compares
// before a guest starts.
func (a *admission) validateMACs(
	ctx context.Context, vm, old *v1.VirtualMachine, by surface.Actor,
) (field.ErrorList, error) {
	if by.Component || vm.DeletionTimestamp != nil {
		return nil, nil
	}
	var before []macaddress.Claim
	var had string
	if old != nil {
		before, had = macaddress.OfVM(old), old.Annotations[macaddress.Annotation]
	}
	record := field.NewPath("metadata", "annotations").Key(macaddress.Annotation)
	if text := vm.Annotations[macaddress.Annotation]; text != had {
		if errs := unreadable(text, record); len(errs) > 0 {
			return errs, nil
		}
	}
	instead := ""
	if from, err := identity.RenamingOf(vm); err == nil && from != nil {
		instead = from.Name
	}
	added := macaddress.Added(macaddress.OfVM(vm), before)
	return a.taken(ctx, added, vm.Namespace, vm.Name, instead, record, field.NewPath("spec", "template", "spec"))
}

// validateInstanceMACs does what validateMACs does, for a new VMI.
func (a *admission) validateInstanceMACs(
	ctx context.Context, vmi *v1.VirtualMachineInstance, by surface.Actor,
) (field.ErrorList, error) {
	if by.Component {
		return nil, nil
	}
	record := field.NewPath("metadata", "annotations").Key(macaddress.Annotation)
	if errs := unreadable(vmi.Annotations[macaddress.Annotation], record); len(errs) > 0 {
		return errs, nil
	}
	return a.taken(ctx, macaddress.OfVMI(vmi), vmi.Namespace, vmi.Name, "", record, field.NewPath("spec"))
}

// unreadable returns an error for a record that cannot be read; none for an object without.
func unreadable(text string, at *field.Path) field.ErrorList {
	if text == "" {
		return nil
	}
	if _, err := macaddress.Decode(text); err != nil {
		return field.ErrorList{field.Invalid(at, text, err.Error()+"; remove the annotation")}
	}
	return nil
}

// taken returns an error for each claim that is another's. record and spec are where the addresses are.
func (a *admission) taken(
	ctx context.Context, claims []macaddress.Claim, namespace, name, instead string, record, spec *field.Path,
) (errs field.ErrorList, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookup)
	defer cancel()
	for i := range claims {
		claim := &claims[i]
		who, nic, err := a.macs.holder(ctx, claim, namespace, name, instead)
		if err != nil {
			return nil, err
		}
		if who == "" {
			continue
		}
		at := record
		if claim.Explicit {
			at = spec.Child("domain", "devices", "interfaces").Index(claim.Index).Child("macAddress")
		}
		refused := field.Duplicate(at, claim.MAC)
		refused.Detail = claim.Taken(who, nic)
		errs = append(errs, refused)
	}
	return errs, nil
}
