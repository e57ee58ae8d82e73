package virtapi

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/ipaddress"
	"github.com/virtkit/virtkit/pkg/vm/macaddress"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// definition reads what a NetworkAttachmentDefinition says of its network's addresses, nil when there is none. One that
// cannot be read counts as none: the CNI plugins say what is wrong with it.
func (m *machines) definition(ctx context.Context, namespace, name string) (*ipaddress.Definition, error) {
	data, err := m.kubevirt.Get().AbsPath("/apis/k8s.cni.cncf.io/v1/namespaces", namespace,
		"network-attachment-definitions", name).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read NetworkAttachmentDefinition %s/%s: %w", namespace, name, err)
	}
	var found struct {
		Spec struct {
			Config string `json:"config"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(data, &found); err != nil {
		return nil, nil //nolint:nilerr // as above
	}
	out, err := ipaddress.ParseDefinition(found.Spec.Config)
	if err != nil {
		return nil, nil //nolint:nilerr // as above
	}
	return out, nil
}

// validateIPs refuses IP addresses that another VM of the cluster has on the same network, those that the network does
// not give, and a record of addresses that cannot be read. It warns of interfaces that will not keep the addresses that
// they get. old is nil when the VM is made. What components make is not asked: virt-controller compares before a guest
// starts.
func (a *admission) validateIPs(
	ctx context.Context, vm, old *v1.VirtualMachine, by surface.Actor,
) (field.ErrorList, []string, error) {
	if by.Component || vm.DeletionTimestamp != nil || vm.Spec.Template == nil {
		return nil, nil, nil
	}
	errs := unreadable(vm.Annotations, annotationsOf(old), ipaddress.Annotation, ipaddress.Decode)
	if len(errs) > 0 {
		return errs, nil, nil
	}
	added := ipaddress.OfVM(vm)
	if old != nil {
		added = ipaddress.Added(added, ipaddress.OfVM(old))
	}
	template := vm.Spec.Template
	wish := field.NewPath("spec", "template", "metadata", "annotations").Key(ipaddress.Wish)
	errs, err := a.taken(ctx, wantedIPs(added, wish), vm, replaced(vm))
	if err != nil || len(errs) > 0 || old != nil && sameWires(vm, old) {
		return errs, nil, err
	}
	return a.judgeIPs(ctx, vm.Namespace, template.ObjectMeta.Annotations, &template.Spec, wish,
		field.NewPath("spec", "template", "spec"))
}

// sameWires reports whether two VMs wish for the same addresses on the same networks.
func sameWires(a, b *v1.VirtualMachine) bool {
	now, before := a.Spec.Template, b.Spec.Template
	return before != nil &&
		now.ObjectMeta.Annotations[ipaddress.Wish] == before.ObjectMeta.Annotations[ipaddress.Wish] &&
		reflect.DeepEqual(wires(&now.Spec), wires(&before.Spec))
}

// validateInstanceIPs does what validateIPs does, for a new VMI, which keeps nothing.
func (a *admission) validateInstanceIPs(
	ctx context.Context, vmi *v1.VirtualMachineInstance, by surface.Actor,
) (field.ErrorList, error) {
	if by.Component {
		return nil, nil
	}
	if errs := unreadable(vmi.Annotations, nil, ipaddress.Annotation, ipaddress.Decode); len(errs) > 0 {
		return errs, nil
	}
	wish := recordPath(ipaddress.Wish)
	errs, err := a.taken(ctx, wantedIPs(ipaddress.OfVMI(vmi), wish), vmi, "")
	if err != nil || len(errs) > 0 || vmi.Annotations[ipaddress.Wish] == "" {
		return errs, err
	}
	errs, _, err = a.judgeIPs(ctx, vmi.Namespace, vmi.Annotations, &vmi.Spec, wish, field.NewPath("spec"))
	return errs, err
}

// wantedIPs says where claims are: in the wish, or in the record.
func wantedIPs(claims []ipaddress.Claim, wish *field.Path) (out []wanted) {
	for i := range claims {
		c := &claims[i]
		at := recordPath(ipaddress.Annotation)
		if c.Wished {
			at = wish
		}
		out = append(out, wanted{claim{byIP, c.Address.String(), c.Key(), c.Interface}, at, c.Taken})
	}
	return out
}

// judgeIPs returns an error for each wish that cannot be had, at wish, and warnings about interfaces, whose spec is at
// path, that keep no addresses.
func (a *admission) judgeIPs(
	ctx context.Context, namespace string, annotations map[string]string, spec *v1.VirtualMachineInstanceSpec,
	wish, path *field.Path,
) (errs field.ErrorList, warnings []string, err error) {
	wished, err := ipaddress.DecodeWish(annotations[ipaddress.Wish])
	if err != nil {
		return nil, nil, nil // the checks of the annotations say so
	}
	ctx, cancel := context.WithTimeout(ctx, lookup)
	defer cancel()
	interfaces, networks := macaddress.Interfaces(spec)
	for i := range interfaces {
		nic := &interfaces[i]
		n, list := networks[nic.Name], wished[nic.Name]
		if nic.State == v1.InterfaceStateAbsent {
			continue
		}
		keeping, err := a.keeping(ctx, namespace, nic, n, len(list) > 0)
		if err != nil {
			return nil, nil, err
		}
		if why := keeping.Refusal(list); len(list) > 0 && why != "" {
			errs = append(errs, field.Invalid(wish, annotations[ipaddress.Wish], "interface "+nic.Name+": "+why))
			continue
		}
		at := path.Child("domain", "devices", "interfaces").Index(i)
		warnings = append(warnings, unkept(at.String(), nic, n, list, &keeping)...)
	}
	return errs, warnings, nil
}

// keeping asks the cluster how an interface keeps its addresses.
func (a *admission) keeping(
	ctx context.Context, namespace string, nic *v1.Interface, n *v1.Network, wished bool,
) (ipaddress.Keeping, error) {
	var definition *ipaddress.Definition
	if n != nil && n.Multus != nil {
		space, name, _ := strings.Cut(macaddress.Network(namespace, n), "/")
		var err error
		if definition, err = a.definition(ctx, space, name); err != nil {
			return ipaddress.Keeping{}, err
		}
	}
	return ipaddress.Keep(namespace, nic, n, wished, definition), nil
}

// unkept warns of addresses of an interface that will be others after the next start. That the pod network's are,
// behind masquerade, everybody knows.
func unkept(
	at string, nic *v1.Interface, n *v1.Network, wished []ipaddress.Address, keeping *ipaddress.Keeping,
) (out []string) {
	if why := macaddress.Obstacle(nic, n); why != "" {
		out = append(out, fmt.Sprintf("%s (%s) does not keep its MAC address: %s; give it a macAddress, if the "+
			"network lets one through that is not the pod's", at, nic.Name, why))
	}
	switch {
	case keeping.Why == "":
	case len(wished) > 0:
		out = append(out, fmt.Sprintf("%s (%s) may not get the IP address that it is wished: %s", at, nic.Name,
			keeping.Why))
	case n != nil && n.Multus != nil || nic.Bridge != nil || nic.Binding != nil:
		out = append(out, fmt.Sprintf("%s (%s) does not keep its IP address over starts: %s", at, nic.Name,
			keeping.Why))
	}
	return out
}
