package vmcontroller

import (
	"errors"
	"maps"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/identity"
	"github.com/virtkit/virtkit/pkg/vm/ipaddress"
	"github.com/virtkit/virtkit/pkg/vm/reserved"
	"github.com/virtkit/virtkit/pkg/vm/rollout"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// Instance returns the VMI that a VM's template describes.
func Instance(vm *v1.VirtualMachine, paused bool) (*v1.VirtualMachineInstance, error) {
	return instanceOf(vm, vm.Spec.Template, paused)
}

// instanceOf does what Instance does, for a VM whose instance type and preference were written into template.
func instanceOf(
	vm *v1.VirtualMachine, template *v1.VirtualMachineInstanceTemplateSpec, paused bool,
) (*v1.VirtualMachineInstance, error) {
	hash, err := rollout.TemplateHash(&template.Spec, refers(vm), rollout.Counted{})
	if err != nil {
		return nil, err
	}
	attached, err := rollout.AttachmentsOf(&template.Spec).Encode()
	if err != nil {
		return nil, err
	}
	template = template.DeepCopy()
	vmi := &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{
			Name:        vm.Name,
			Namespace:   vm.Namespace,
			Labels:      map[string]string{},
			Annotations: map[string]string{},
			// Also set at admission; here so that there is no moment without.
			Finalizers: []string{v1.VirtualMachineInstanceFinalizer},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind),
			},
		},
		Spec: template.Spec,
	}
	if len(vm.Name) <= 63 {
		vmi.Labels[v1.VirtualMachineLabel] = vm.Name
	}
	maps.Copy(vmi.Labels, template.ObjectMeta.Labels)
	maps.Copy(vmi.Annotations, template.ObjectMeta.Annotations)
	reserved.Drop(vmi.Annotations) // what a template, instance type or preference has may be anybody's
	if value, given := volumemigration.OwnOptIn(vm); given {
		vmi.Annotations[volumemigration.OptInAnnotation] = value
	}
	vmi.Annotations[v1.VirtualMachineGenerationAnnotation] = strconv.FormatInt(vm.Generation, 10)
	vmi.Annotations[rollout.TemplateHashAnnotation] = hash
	if plugged := hotplug.Names(&template.Spec); len(plugged) > 0 {
		vmi.Annotations[hotplug.DeclaredAnnotation] = hotplug.Declare(plugged)
	}
	vmi.Annotations[rollout.InterfacesAnnotation] = attached
	if err := errors.Join(giveMACs(vm, vmi, nil), giveIPs(vmi, ipaddress.Wanted(vm, nil, nil))); err != nil {
		return nil, err
	}
	if paused {
		strategy := v1.StartStrategyPaused
		vmi.Spec.StartStrategy = &strategy
	}
	if vmi.Spec.Domain.Firmware == nil {
		vmi.Spec.Domain.Firmware = &v1.Firmware{}
	}
	if vmi.Spec.Domain.Firmware.UUID == "" {
		vmi.Spec.Domain.Firmware.UUID = identity.UUID(vm.Name)
	}
	return vmi, nil
}

// upToDate reports whether a VMI was made from its VM as it is now, or has taken over since what was changed. One that
// does not say so, such as an adopted one, is taken to be.
func upToDate(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) bool {
	return vmi.Annotations[rollout.TemplateHashAnnotation] == "" ||
		vmi.Annotations[v1.VirtualMachineGenerationAnnotation] == strconv.FormatInt(vm.Generation, 10)
}

// restartRequired reports whether there is something in the VM's template that its VMI, which was made from another,
// will not have before it is made anew.
func restartRequired(view View) bool {
	if tooLarge(view.VMI) != "" || rollout.Stuck(view.VMI) != "" {
		return true
	}
	if upToDate(view.VM, view.VMI) {
		return false
	}
	template := view.template()
	if template == nil {
		return true // nor can what it refers to be read
	}
	same, err := rollout.MadeFrom(view.VMI, template, refers(view.VM))
	return err == nil && !same || len(view.Change.Refused) > 0 || len(view.Volumes.Refused) > 0 ||
		len(view.claims().Refused) > 0 || len(view.plugging().Refused) > 0 || len(view.placing().Refused) > 0 ||
		len(view.limiting().Refused) > 0
}

// RestartRequired reports whether a VM needs a restart: by its status, or, before that says so, by a change of another
// field than the guest's size, if the VM refers to no instance type or preference.
func RestartRequired(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) bool {
	if !refers(vm) && restartRequired(View{VM: vm, VMI: vmi}) {
		return true
	}
	return conditions.True(vm.Status.Conditions, v1.VirtualMachineRestartRequired)
}

// template returns the VM's template, with what it refers to written into it; nil when that is not known.
func (view View) template() *v1.VirtualMachineInstanceSpec {
	if view.Template == nil && !refers(view.VM) {
		return &view.VM.Spec.Template.Spec
	}
	return view.Template
}

// observedGeneration returns the VM's generation that its VMI was made from; 0 when unknown.
func observedGeneration(vmi *v1.VirtualMachineInstance) int64 {
	generation, err := strconv.ParseInt(vmi.Annotations[v1.VirtualMachineGenerationAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return generation
}
