package rollout

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/reserved"
)

// InterfacesAnnotation is on a VM's VMI: the interfaces and networks of the template as the VMI has taken them over,
// JSON of Attachments. The template's hash does not count them then.
const InterfacesAnnotation = reserved.TemplateInterfaces

// Attachments are a template's interfaces, without their states, and its networks.
type Attachments struct {
	Interfaces []v1.Interface `json:"interfaces,omitempty"`
	Networks   []v1.Network   `json:"networks,omitempty"`
}

// AttachmentsOf returns the attachments of a template.
func AttachmentsOf(spec *v1.VirtualMachineInstanceSpec) Attachments {
	return Attachments{Interfaces: Linkless(spec).Domain.Devices.Interfaces, Networks: spec.Networks}
}

// Encode returns them as InterfacesAnnotation has them.
func (a Attachments) Encode() (string, error) {
	data, err := json.Marshal(a)
	if err != nil {
		return "", fmt.Errorf("encode spec.template.spec.networks: %w", err)
	}
	return string(data), nil
}

// Taken returns the Attachments that a VMI has taken over; ok is false for one that does not say.
func Taken(instance *v1.VirtualMachineInstance) (a Attachments, ok bool) {
	text := instance.Annotations[InterfacesAnnotation]
	return a, text != "" && json.Unmarshal([]byte(text), &a) == nil
}

// Has reports whether there is an interface of a name.
func (a Attachments) Has(name string) bool {
	nic, _ := a.pair(name)
	return nic != nil
}

// pair finds an interface and its network, nil what there is not.
func (a Attachments) pair(name string) (*v1.Interface, *v1.Network) {
	return find(a.Interfaces, func(n *v1.Interface) bool { return n.Name == name }),
		find(a.Networks, func(n *v1.Network) bool { return n.Name == name })
}

func find[T any](list []T, is func(*T) bool) *T {
	for i := range list {
		if is(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

func without[T any](list []T, is func(*T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), func(x T) bool { return is(&x) })
}

// with puts an interface and its network in the place of those of their name, or at the end.
func (a Attachments) with(nic v1.Interface, n v1.Network) Attachments {
	return Attachments{
		Interfaces: put(a.Interfaces, nic, func(x *v1.Interface) bool { return x.Name == nic.Name }),
		Networks:   put(a.Networks, n, func(x *v1.Network) bool { return x.Name == n.Name }),
	}
}

func put[T any](list []T, x T, is func(*T) bool) []T {
	list = slices.Clone(list)
	if old := find(list, is); old != nil {
		*old = x
		return list
	}
	return append(list, x)
}

func (a Attachments) less(name string) Attachments {
	return Attachments{
		Interfaces: without(a.Interfaces, func(n *v1.Interface) bool { return n.Name == name }),
		Networks:   without(a.Networks, func(n *v1.Network) bool { return n.Name == name }),
	}
}

// Plugging holds what the interfaces of a VM's template mean for its running guest.
type Plugging struct {
	// Taken and Spec are the Attachments that the VMI has taken over, and has, from now on.
	Taken, Spec Attachments
	// Refused says by path, below spec.template.spec, why the guest can have it only when it is started again.
	Refused map[string]string
}

// Plug compares the present template with the VMI. connected reports whether the guest's pod is connected to the
// network of an interface, live whether the installation changes running guests.
// MovesNetwork reports whether a network of these has another definition among those.
func MovesNetwork(before, after []v1.Network) bool {
	return slices.ContainsFunc(after, func(n v1.Network) bool {
		return slices.ContainsFunc(before, func(was v1.Network) bool {
			return was.Name == n.Name && was.Multus != nil && n.Multus != nil &&
				was.Multus.NetworkName != n.Multus.NetworkName
		})
	})
}

func Plug(
	template *v1.VirtualMachineInstanceSpec, instance *v1.VirtualMachineInstance,
	connected func(*v1.Interface, *v1.Network) bool, live bool,
) Plugging {
	old, ok := Taken(instance)
	has := Attachments{Interfaces: instance.Spec.Domain.Devices.Interfaces, Networks: instance.Spec.Networks}
	p := Plugging{Taken: old, Spec: has, Refused: map[string]string{}}
	if !ok {
		p.unknown(template)
		return p
	}
	want := AttachmentsOf(template)
	for i := range want.Interfaces {
		name := want.Interfaces[i].Name
		nic, n := want.pair(name)
		was, wasNetwork := old.pair(name)
		has, hasNetwork := has.pair(name)
		same := was != nil && equality.Semantic.DeepEqual(was, nic) && equality.Semantic.DeepEqual(wasNetwork, n)
		absent := template.Domain.Devices.Interfaces[i].State == v1.InterfaceStateAbsent
		gone := has == nil || has.State == v1.InterfaceStateAbsent
		path := "domain.devices.interfaces[" + name + "]"
		switch {
		case !gone && same:
		case !gone && moves(was, nic, wasNetwork, n):
			why := obstacle(nic, n, instance, connected, live)
			if network.PlugObstacle(nic, n) != "" {
				why = "only interfaces with bridge: {} move to another network while the guest runs; restart it"
			}
			if why != "" {
				p.Refused[path] = why
				continue
			}
			p.Taken, p.Spec = p.Taken.with(*nic, *n), p.Spec.with(*has, *n)
		case !gone && was == nil && spelled(nic, has) && equality.Semantic.DeepEqual(n, hasNetwork):
			p.Taken = p.Taken.with(*nic, *n)
		case !gone && n != nil && n.Pod != nil: // which cannot be unplugged
			p.Refused[path] = "the guest has it as it was; restart it"
		case !gone:
			p.Refused[path] = "the guest has it as it was; unplug it first, by state: absent, or restart the guest"
		case absent && n != nil:
			p.Taken = p.Taken.with(*nic, *n)
		case gone && has != nil && listed(instance, name):
			// It is being unplugged; then it can come back.
		default:
			if why := obstacle(nic, n, instance, connected, live); why != "" {
				p.Refused[path] = why
				continue
			}
			come := network.Plugged(nic)
			come.State = template.Domain.Devices.Interfaces[i].State
			p.Taken, p.Spec = p.Taken.with(*nic, *n), p.Spec.with(come, *n)
		}
	}
	for _, was := range old.Interfaces {
		if nic, _ := want.pair(was.Name); nic != nil {
			continue
		}
		has, _ := has.pair(was.Name)
		switch {
		case has == nil || has.State == v1.InterfaceStateAbsent && !listed(instance, was.Name):
			p.Taken, p.Spec = p.Taken.less(was.Name), p.Spec.less(was.Name)
		case has.State != v1.InterfaceStateAbsent:
			p.Refused["domain.devices.interfaces["+was.Name+"]"] = "the guest has it still; unplug it first, by " +
				"state: absent, or restart the guest"
		}
	}
	return p
}

// moves reports whether nothing of an interface is changed but the NetworkAttachmentDefinition that its network names:
// the guest keeps its device, and another pod connects that to another network.
func moves(was, nic *v1.Interface, from, to *v1.Network) bool {
	if was == nil || from == nil || to == nil || from.Multus == nil || to.Multus == nil ||
		!equality.Semantic.DeepEqual(was, nic) {
		return false
	}
	named := *from.DeepCopy()
	named.Multus.NetworkName = to.Multus.NetworkName
	return equality.Semantic.DeepEqual(&named, to)
}

// spelled reports whether an interface is one that a guest has by default, written into the template. Its state does
// not count.
func spelled(nic, has *v1.Interface) bool {
	written := *nic
	written.State = has.State
	if written.Model == "" {
		written.Model = has.Model
	}
	if written.MacAddress == "" {
		written.MacAddress = has.MacAddress
	}
	return equality.Semantic.DeepEqual(&written, has)
}

// unknown handles a VMI of a controller that did not record what it took over: its template's hash shows changes, but
// for an interface that was unplugged and is to come back.
func (p *Plugging) unknown(template *v1.VirtualMachineInstanceSpec) {
	for _, nic := range template.Domain.Devices.Interfaces {
		if has, _ := p.Spec.pair(nic.Name); has != nil && has.State == v1.InterfaceStateAbsent &&
			nic.State != v1.InterfaceStateAbsent {
			p.Refused["domain.devices.interfaces["+nic.Name+"].state"] = "the guest has let it go"
		}
	}
}

// listed reports whether the guest, or its pod, still has an interface.
func listed(instance *v1.VirtualMachineInstance, name string) bool {
	return slices.ContainsFunc(instance.Status.Interfaces,
		func(s v1.VirtualMachineInstanceNetworkInterface) bool { return s.Name == name })
}

// obstacle returns why a running guest cannot be given an interface, or "" when it can, at once or by a migration.
func obstacle(
	nic *v1.Interface, n *v1.Network, instance *v1.VirtualMachineInstance,
	connected func(*v1.Interface, *v1.Network) bool, live bool,
) string {
	if why := network.PlugObstacle(nic, n); why != "" {
		return why
	}
	if !live {
		return "vmRolloutStrategy is Stage"
	}
	if connected(nic, n) {
		return ""
	}
	return immovable(instance)
}

// immovable returns why a guest cannot move to another pod, in which it would have a new interface, or one on another
// network, or "" when it can.
func immovable(instance *v1.VirtualMachineInstance) string {
	c := conditions.With(instance.Status.Conditions, v1.VirtualMachineInstanceIsMigratable, corev1.ConditionFalse)
	if c == nil {
		return ""
	}
	return "only another pod has its network, and the guest cannot migrate: " + c.Message
}

// Stuck returns why a guest that must migrate cannot, or "" when it need not or can.
func Stuck(instance *v1.VirtualMachineInstance) string {
	c := conditions.With(instance.Status.Conditions, v1.VirtualMachineInstanceMigrationRequired, corev1.ConditionTrue)
	if c == nil {
		return ""
	}
	return immovable(instance)
}

// Linkless returns a spec without the parts of its interfaces that may change while the guest runs.
func Linkless(spec *v1.VirtualMachineInstanceSpec) *v1.VirtualMachineInstanceSpec {
	out := *spec
	devices := &out.Domain.Devices
	devices.Interfaces = append([]v1.Interface(nil), devices.Interfaces...)
	for i := range devices.Interfaces {
		devices.Interfaces[i].State = ""
	}
	return &out
}
