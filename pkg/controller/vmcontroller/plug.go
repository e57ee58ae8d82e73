package vmcontroller

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/rollout"
)

// plugging returns what the interfaces of the view's template mean for its VMI.
func (view View) plugging() rollout.Plugging {
	template := view.template()
	if template == nil {
		return rollout.Plugging{}
	}
	return rollout.Plug(template, view.VMI, view.connected, !view.Staged)
}

// connected reports whether the guest's pod is connected to the network of an interface.
func (view View) connected(nic *v1.Interface, n *v1.Network) bool {
	return slices.ContainsFunc(view.Pods, func(pod *corev1.Pod) bool {
		return pod.Spec.NodeName != "" && pod.Spec.NodeName == view.VMI.Status.NodeName &&
			life.HasGuest(view.VMI, pod) && network.Connected(pod.Annotations, view.VMI.Namespace, nic, n)
	})
}

// leaving reports whether there is a pod to which the guest is to migrate.
func (view *View) leaving() bool {
	return migrations.UnderWay(view.VMI) || slices.ContainsFunc(view.Pods, func(pod *corev1.Pod) bool {
		return pod.Labels[v1.MigrationJobLabel] != "" && !life.PodEnded(pod) && !life.GuestIn(view.VMI, pod)
	})
}

// followInterfaces brings interfaces that were added to a VM into its VMI, and takes those out that were unplugged and
// removed. It reports whether the VMI is changed.
func (view *View) followInterfaces() (bool, error) {
	instance := view.VMI
	if !life.Running(instance) || migrations.Begun(instance) || upToDate(view.VM, instance) || view.template() == nil {
		return false, nil
	}
	p := view.plugging()
	text, err := p.Taken.Encode()
	if err != nil {
		return false, err
	}
	after := instance.DeepCopy()
	after.Spec.Domain.Devices.Interfaces, after.Spec.Networks = p.Spec.Interfaces, p.Spec.Networks
	if view.leaving() && rollout.MovesNetwork(instance.Spec.Networks, after.Spec.Networks) {
		return false, nil // its target is connected to the network before; the end of the migration brings another look
	}
	if _, known := rollout.Taken(instance); !known ||
		text == instance.Annotations[rollout.InterfacesAnnotation] &&
			equality.Semantic.DeepEqual(after.Spec, instance.Spec) {
		return false, nil
	}
	after.Annotations = maps.Clone(after.Annotations)
	after.Annotations[rollout.InterfacesAnnotation] = text
	if err := giveMACs(view.VM, after, instance); err != nil {
		return false, err
	}
	view.VMI = after
	return true, nil
}
