package vmcontroller

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

// InterfacesAnnotation is on a VM's VMI: the interfaces and networks of the template as the VMI has taken them over,
// JSON of attachments. The template's hash does not count them then.
const InterfacesAnnotation = "virtkit.io/template-interfaces"

// attachments are a template's interfaces, without their states, and its networks.
type attachments struct {
	Interfaces []v1.Interface `json:"interfaces,omitempty"`
	Networks   []v1.Network   `json:"networks,omitempty"`
}

func attachmentsOf(spec *v1.VirtualMachineInstanceSpec) attachments {
	return attachments{Interfaces: linkless(spec).Domain.Devices.Interfaces, Networks: spec.Networks}
}

func (a attachments) encode() (string, error) {
	data, err := json.Marshal(a)
	if err != nil {
		return "", fmt.Errorf("encode spec.template.spec.networks: %w", err)
	}
	return string(data), nil
}

// taken are the attachments that a VMI has taken over; ok is false for one that does not tell.
func taken(instance *v1.VirtualMachineInstance) (a attachments, ok bool) {
	text := instance.Annotations[InterfacesAnnotation]
	return a, text != "" && json.Unmarshal([]byte(text), &a) == nil
}

// pair finds an interface and its network, nil what there is not.
func (a attachments) pair(name string) (*v1.Interface, *v1.Network) {
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
func (a attachments) with(nic v1.Interface, n v1.Network) attachments {
	return attachments{
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

func (a attachments) less(name string) attachments {
	return attachments{
		Interfaces: without(a.Interfaces, func(n *v1.Interface) bool { return n.Name == name }),
		Networks:   without(a.Networks, func(n *v1.Network) bool { return n.Name == name }),
	}
}

// plugging is what the interfaces of a VM's template mean for its guest, which runs.
type plugging struct {
	// Taken and Spec are the attachments that the VMI has taken over, and has, from now on.
	Taken, Spec attachments
	// Refused says by path, below spec.template.spec, why the guest can have it only when it is started again.
	Refused map[string]string
}

// plug compares the template of now with the VMI. live is whether the installation changes guests that run.
func plug(
	template *v1.VirtualMachineInstanceSpec, instance *v1.VirtualMachineInstance, pods []*corev1.Pod, live bool,
) plugging {
	old, ok := taken(instance)
	has := attachments{Interfaces: instance.Spec.Domain.Devices.Interfaces, Networks: instance.Spec.Networks}
	p := plugging{Taken: old, Spec: has, Refused: map[string]string{}}
	if !ok {
		p.unknown(template)
		return p
	}
	want := attachmentsOf(template)
	for i := range want.Interfaces {
		name := want.Interfaces[i].Name
		nic, n := want.pair(name)
		was, wasNetwork := old.pair(name)
		has, _ := has.pair(name)
		same := was != nil && equality.Semantic.DeepEqual(was, nic) && equality.Semantic.DeepEqual(wasNetwork, n)
		absent := template.Domain.Devices.Interfaces[i].State == v1.InterfaceStateAbsent
		gone := has == nil || has.State == v1.InterfaceStateAbsent
		path := "domain.devices.interfaces[" + name + "]"
		switch {
		case !gone && same:
		case !gone:
			p.Refused[path] = "the guest has it as it was; unplug it first, by state: absent, or restart the guest"
		case absent && n != nil:
			p.Taken = p.Taken.with(*nic, *n)
		case gone && has != nil && listed(instance, name):
			// It is being unplugged; then it can come back.
		default:
			if why := obstacle(nic, n, instance, pods, live); why != "" {
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

// unknown is for a VMI of a controller that did not write down what it took over: its template's hash tells of changes,
// but for an interface that was unplugged and is to come back.
func (p *plugging) unknown(template *v1.VirtualMachineInstanceSpec) {
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

// obstacle is why a guest that runs cannot be given an interface; empty when it can, at once or by a migration.
func obstacle(
	nic *v1.Interface, n *v1.Network, instance *v1.VirtualMachineInstance, pods []*corev1.Pod, live bool,
) string {
	if why := network.PlugObstacle(nic, n); why != "" {
		return why
	}
	if !live {
		return "vmRolloutStrategy is Stage"
	}
	for _, pod := range pods {
		if pod.Spec.NodeName != instance.Status.NodeName || pod.Spec.NodeName == "" {
			continue
		}
		if vmicontroller.HasGuest(instance, pod) && network.Connected(pod.Annotations, instance.Namespace, nic, n) {
			return ""
		}
	}
	return immovable(instance)
}

// immovable is why a guest cannot move to another pod, in which it would have a new interface; empty when it can.
func immovable(instance *v1.VirtualMachineInstance) string {
	c := conditions.With(instance.Status.Conditions, v1.VirtualMachineInstanceIsMigratable, corev1.ConditionFalse)
	if c == nil {
		return ""
	}
	return "only another pod has its network, and the guest cannot migrate: " + c.Message
}

// stuck is why a guest that must migrate cannot; empty when it need not or can.
func stuck(instance *v1.VirtualMachineInstance) string {
	c := conditions.With(instance.Status.Conditions, v1.VirtualMachineInstanceMigrationRequired, corev1.ConditionTrue)
	if c == nil {
		return ""
	}
	return immovable(instance)
}

// plugging is what the interfaces of the view's template mean for its VMI.
func (view View) plugging() plugging {
	template := view.template()
	if template == nil {
		return plugging{}
	}
	return plug(template, view.VMI, view.Pods, !view.Staged)
}

// followInterfaces brings interfaces that were added to a VM into its VMI, and takes those out that were unplugged and
// removed.
func (view *View) followInterfaces() error {
	instance := view.VMI
	if instance == nil || instance.Status.Phase != v1.Running || instance.DeletionTimestamp != nil ||
		migrations.Begun(instance) || upToDate(view.VM, instance) || view.template() == nil {
		return nil
	}
	p := view.plugging()
	text, err := p.Taken.encode()
	if err != nil {
		return err
	}
	after := instance.DeepCopy()
	after.Spec.Domain.Devices.Interfaces, after.Spec.Networks = p.Spec.Interfaces, p.Spec.Networks
	if _, known := taken(instance); !known ||
		text == instance.Annotations[InterfacesAnnotation] && equality.Semantic.DeepEqual(after.Spec, instance.Spec) {
		return nil
	}
	after.Annotations = maps.Clone(after.Annotations)
	after.Annotations[InterfacesAnnotation] = text
	view.VMI = after
	if !restartRequired(*view) {
		after.Annotations[v1.VirtualMachineGenerationAnnotation] = strconv.FormatInt(view.VM.Generation, 10)
	}
	return nil
}
