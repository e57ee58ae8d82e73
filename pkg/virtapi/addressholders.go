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

	"github.com/virtkit/virtkit/pkg/vm/ipaddress"
	"github.com/virtkit/virtkit/pkg/vm/macaddress"
)

// The indexes of both caches.
const (
	byMAC = "MAC"
	byIP  = "IP"
)

// claim is an address that an interface has on its network.
type claim struct {
	// index is byMAC or byIP, address what claims of both kinds say of it.
	index, address, key, nic string
}

var (
	macsOf = claimsOf(macaddress.OfVM, macaddress.OfVMI, func(c macaddress.Claim) claim {
		return claim{byMAC, c.MAC, c.Key(), c.Interface}
	})
	ipsOf = claimsOf(ipaddress.OfVM, ipaddress.OfVMI, func(c ipaddress.Claim) claim {
		return claim{byIP, c.Address.String(), c.Key(), c.Interface}
	})
)

// claimsOf returns what gives the claims of a VM or VMI.
func claimsOf[C any](
	ofVM func(*v1.VirtualMachine) []C, ofVMI func(*v1.VirtualMachineInstance) []C, as func(C) claim,
) func(object any) []claim {
	return func(object any) (out []claim) {
		var all []C
		switch object := object.(type) {
		case *v1.VirtualMachine:
			all = ofVM(object)
		case *v1.VirtualMachineInstance:
			all = ofVMI(object)
		}
		for _, c := range all {
			out = append(out, as(c))
		}
		return out
	}
}

// keys makes an index of claims.
func keys(of func(object any) []claim) cache.IndexFunc {
	return func(object any) (keys []string, err error) {
		for _, c := range of(object) {
			keys = append(keys, c.key)
		}
		return keys, nil
	}
}

// addressHolders finds the VM, or the VMI that no VM owns, that has a MAC or IP address on a network, from watches of
// both; of each object it keeps the interfaces only. What is found is read from the API before a request is refused for
// it: the caches may be old. What they do not have yet virt-controller finds, before a guest starts with it.
type addressHolders struct {
	vms, vmis cache.SharedIndexInformer
	vm        func(ctx context.Context, namespace, name string) (*v1.VirtualMachine, error)
	vmi       func(ctx context.Context, namespace, name string) (*v1.VirtualMachineInstance, error)
}

func newAddressHolders(client rest.Interface, m *machines) (*addressHolders, error) {
	follow := func(resource, selector string, object runtime.Object) (cache.SharedIndexInformer, error) {
		watch := cache.NewFilteredListWatchFromClient(client, resource, metav1.NamespaceAll,
			func(options *metav1.ListOptions) { options.LabelSelector = selector })
		informer := cache.NewSharedIndexInformerWithOptions(watch, object, cache.SharedIndexInformerOptions{
			Indexers: cache.Indexers{byMAC: keys(macsOf), byIP: keys(ipsOf)},
		})
		if err := informer.SetTransform(onlyInterfaces); err != nil {
			return nil, fmt.Errorf("follow %s: %w", resource, err)
		}
		return informer, nil
	}
	h := &addressHolders{vm: m.vm, vmi: m.vmi}
	var err error
	if h.vms, err = follow(virtualMachines, "", &v1.VirtualMachine{}); err != nil {
		return nil, err
	}
	h.vmis, err = follow(virtualMachineInstances, "!"+v1.VirtualMachineLabel, &v1.VirtualMachineInstance{})
	return h, err
}

// onlyInterfaces keeps of a VM and a VMI what its claims are made of.
func onlyInterfaces(object any) (any, error) {
	switch object := object.(type) {
	case *v1.VirtualMachine:
		out := &v1.VirtualMachine{ObjectMeta: shortMeta(&object.ObjectMeta)}
		if object.Spec.Template != nil {
			template := object.Spec.Template
			out.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{Spec: wires(&template.Spec)}
			out.Spec.Template.ObjectMeta.Annotations = addressesAmong(template.ObjectMeta.Annotations)
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
	out.Annotations = addressesAmong(meta.Annotations)
	return out
}

// addressesAmong returns the annotations that say addresses.
func addressesAmong(annotations map[string]string) map[string]string {
	var out map[string]string
	for _, key := range []string{macaddress.Annotation, ipaddress.Annotation, ipaddress.Wish} {
		if text, ok := annotations[key]; ok {
			if out == nil {
				out = map[string]string{}
			}
			out[key] = text
		}
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
func (h *addressHolders) run(ctx context.Context) {
	done := make(chan struct{})
	go func() { defer close(done); h.vmis.RunWithContext(ctx) }()
	h.vms.RunWithContext(ctx)
	<-done
}

// holder returns who else has an address, "" for nobody, and the name of its interface. namespace and name are those of
// the VM or VMI that claims it; instead is the name of the VM whose place it takes.
func (h *addressHolders) holder(
	ctx context.Context, c claim, namespace, name, instead string,
) (who, nic string, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookup)
	defer cancel()
	for _, informer := range []cache.SharedIndexInformer{h.vms, h.vmis} {
		objects, err := informer.GetIndexer().ByIndex(c.index, c.key)
		if err != nil {
			return "", "", fmt.Errorf("find who has the %s address %s: %w", c.index, c.address, err)
		}
		for _, object := range objects {
			meta := object.(metav1.Object)
			if meta.GetNamespace() == namespace && (meta.GetName() == name || meta.GetName() == instead) {
				continue
			}
			found, kind, err := h.read(ctx, object, c.index)
			switch {
			case apierrors.IsNotFound(err):
				continue
			case err != nil:
				return "", "", fmt.Errorf("read who has the %s address %s: %w", c.index, c.address, err)
			}
			for _, theirs := range found {
				if theirs.key == c.key {
					return fmt.Sprintf("%s %s/%s", kind, meta.GetNamespace(), meta.GetName()), theirs.nic, nil
				}
			}
		}
	}
	return "", "", nil
}

// read returns the claims of an index that an object of the caches has now.
func (h *addressHolders) read(ctx context.Context, object any, index string) (claims []claim, kind string, err error) {
	of := macsOf
	if index == byIP {
		of = ipsOf
	}
	if vmi, is := object.(*v1.VirtualMachineInstance); is {
		found, err := h.vmi(ctx, vmi.Namespace, vmi.Name)
		if err != nil || found.IsFinal() {
			return nil, "", err
		}
		return of(found), "VirtualMachineInstance", nil
	}
	vm := object.(*v1.VirtualMachine)
	found, err := h.vm(ctx, vm.Namespace, vm.Name)
	if err != nil {
		return nil, "", err
	}
	return of(found), "VM", nil
}

// wanted is a claim of an object that is being admitted.
type wanted struct {
	claim
	// at is where the object says so, refusal how it is refused.
	at      *field.Path
	refusal func(holder, nic string) string
}

// taken returns an error for each claim that is another's. instead is the name of the VM whose place the object takes.
func (a *admission) taken(
	ctx context.Context, claims []wanted, of metav1.Object, instead string,
) (errs field.ErrorList, err error) {
	for _, c := range claims {
		who, nic, err := a.holders.holder(ctx, c.claim, of.GetNamespace(), of.GetName(), instead)
		if err != nil {
			return nil, err
		}
		if who == "" {
			continue
		}
		refused := field.Duplicate(c.at, c.address)
		refused.Detail = c.refusal(who, nic)
		errs = append(errs, refused)
	}
	return errs, nil
}

// unreadable returns an error for a record, the annotation key, that cannot be read; none for an object without, and
// for one that it had before.
func unreadable[T any](
	annotations, before map[string]string, key string, decode func(string) (T, error),
) field.ErrorList {
	text := annotations[key]
	if text == "" || text == before[key] {
		return nil
	}
	if _, err := decode(text); err != nil {
		return field.ErrorList{field.Invalid(recordPath(key), text, err.Error()+"; remove the annotation")}
	}
	return nil
}

func recordPath(key string) *field.Path { return field.NewPath("metadata", "annotations").Key(key) }

func annotationsOf(vm *v1.VirtualMachine) map[string]string {
	if vm == nil {
		return nil
	}
	return vm.Annotations
}
