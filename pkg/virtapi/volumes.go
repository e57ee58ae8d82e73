package virtapi

import (
	"context"
	"errors"
	"maps"
	"strings"

	"github.com/emicklei/go-restful/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/qos"
)

// volumeChange is a change of the hotplugged volumes of a spec. Its errors are about the request (400), or ErrConflict
// about what the spec has (409).
type volumeChange struct {
	dryRun []string
	edit   func(*v1.VirtualMachineInstanceSpec) error
	// begun is a template before the change, where the template has it and the VMI does not; otherwise nil.
	begun func(*v1.VirtualMachineInstanceSpec, *v1.VirtualMachineInstance) *v1.VirtualMachineInstanceSpec
}

// adding reads a request to add a volume.
func adding(r *restful.Request) (volumeChange, error) {
	options := &v1.AddVolumeOptions{}
	if err := decode(r.Request, options); err != nil {
		return volumeChange{}, err
	}
	if err := hotplug.Check(options); err != nil {
		return volumeChange{}, badRequest(err.Error())
	}
	add := func(spec *v1.VirtualMachineInstanceSpec) error { return hotplug.Add(spec, options) }
	begun := func(
		template *v1.VirtualMachineInstanceSpec, vmi *v1.VirtualMachineInstance,
	) *v1.VirtualMachineInstanceSpec {
		return hotplug.AddBegun(template, vmi, options)
	}
	return volumeChange{options.DryRun, add, begun}, checkDryRun(options.DryRun)
}

// removing reads a request to remove one.
func removing(r *restful.Request) (volumeChange, error) {
	options := &v1.RemoveVolumeOptions{}
	if err := decode(r.Request, options); err != nil {
		return volumeChange{}, err
	}
	if options.Name == "" {
		return volumeChange{}, badRequest("RemoveVolumeOptions requires name to be set")
	}
	remove := func(spec *v1.VirtualMachineInstanceSpec) error { return hotplug.Remove(spec, options.Name) }
	begun := func(
		template *v1.VirtualMachineInstanceSpec, vmi *v1.VirtualMachineInstance,
	) *v1.VirtualMachineInstanceSpec {
		return hotplug.RemoveBegun(template, vmi, options.Name)
	}
	return volumeChange{options.DryRun, remove, begun}, checkDryRun(options.DryRun)
}

func (q *requests) addVolumeToMachine(r *restful.Request, namespace, name string) error {
	c, err := adding(r)
	if err != nil {
		return err
	}
	return q.changeMachineVolumes(r.Request.Context(), namespace, name, c)
}

func (q *requests) removeVolumeFromMachine(r *restful.Request, namespace, name string) error {
	c, err := removing(r)
	if err != nil {
		return err
	}
	return q.changeMachineVolumes(r.Request.Context(), namespace, name, c)
}

func (q *requests) addVolumeToInstance(r *restful.Request, namespace, name string) error {
	c, err := adding(r)
	if err != nil {
		return err
	}
	return q.changeInstanceVolumes(r.Request.Context(), namespace, name, c)
}

func (q *requests) removeVolumeFromInstance(r *restful.Request, namespace, name string) error {
	c, err := removing(r)
	if err != nil {
		return err
	}
	return q.changeInstanceVolumes(r.Request.Context(), namespace, name, c)
}

// changeMachineVolumes changes a VM's template, and the VMI with it when there is one. The template comes first,
// once the VMI was asked whether it would refuse: virt-controller brings VMIs up to their templates, too, so
// what either of them does to the VMI meanwhile is the same, and who comes second finds it done. A request that
// was cut short between the two writes is finished when it is made again.
func (q *requests) changeMachineVolumes(ctx context.Context, namespace, name string, c volumeChange) error {
	var before, after *v1.VirtualMachineInstanceSpec
	err := retried(func() error {
		vm, vmi, err := q.machines.machine(ctx, namespace, name)
		if err != nil {
			return err
		}
		if vm.Spec.Template == nil {
			return conflict(vm, "spec.template is not set")
		}
		after = &vm.Spec.Template.Spec
		if active(vmi) {
			if before = c.begun(after, vmi); before != nil {
				return nil
			}
		}
		before = after.DeepCopy()
		if err := c.edit(after); err != nil {
			return refused(err, func(text string) error { return conflict(vm, text) })
		}
		if active(vmi) && carry(vmi, before, after) {
			if err := q.machines.patchVolumes(ctx, virtualMachineInstances, vmi, &vmi.Spec,
				[]string{metav1.DryRunAll}); err != nil {
				return err
			}
		}
		return q.machines.patchVolumes(ctx, virtualMachines, vm, after, c.dryRun)
	})
	if err != nil || len(c.dryRun) > 0 {
		return err
	}
	return retried(func() error {
		_, vmi, err := q.machines.machine(ctx, namespace, name)
		if err != nil || !active(vmi) || !carry(vmi, before, after) {
			return err
		}
		return q.machines.patchVolumes(ctx, virtualMachineInstances, vmi, &vmi.Spec, nil)
	})
}

// changeInstanceVolumes changes a VMI only: the change ends with it.
func (q *requests) changeInstanceVolumes(ctx context.Context, namespace, name string, c volumeChange) error {
	return retried(func() error {
		vmi, err := q.machines.vmi(ctx, namespace, name)
		if err != nil {
			return err
		}
		if !life.Running(vmi) {
			return notRunning(vmi)
		}
		had := hotplug.Names(&vmi.Spec)
		if err := c.edit(&vmi.Spec); err != nil {
			return refused(err, func(text string) error { return conflictVMI(vmi, ": "+text) })
		}
		// What comes so is the VMI's alone, whatever its VM had of that name; what goes so is taken away until the
		// next start.
		declared := hotplug.Declared(vmi.Annotations)
		maps.DeleteFunc(declared,
			func(name string, _ bool) bool { return !had[name] && hotplug.Volume(&vmi.Spec, name) != nil })
		declare(vmi, declared)
		return q.machines.patchVolumes(ctx, virtualMachineInstances, vmi, &vmi.Spec, c.dryRun)
	})
}

// retried tries again while somebody else changes the object, as the components do to its status.
func retried(try func() error) error {
	var err error
	for range attempts {
		err = try()
		var wrote *conflictingWriteError
		if !errors.As(err, &wrote) {
			return err
		}
	}
	return err
}

// conflictingWriteError is a write that met another, as opposed to a conflict that is the user's error at once.
type conflictingWriteError struct{ error }

func (c *conflictingWriteError) Unwrap() error { return c.error }

func refused(err error, conflict func(text string) error) error {
	if errors.Is(err, hotplug.ErrConflict) {
		return conflict(err.Error())
	}
	return badRequest(err.Error())
}

// carry applies to a VMI's volumes what changed in those of its template between before and after, and reports whether
// that is a change.
func carry(vmi *v1.VirtualMachineInstance, before, after *v1.VirtualMachineInstanceSpec) bool {
	instance, declared, changed := &vmi.Spec, hotplug.Declared(vmi.Annotations), false
	for _, volume := range hotplug.Volumes(before) {
		if hotplug.Volume(after, volume.Name) == nil && hotplug.Remove(instance, volume.Name) == nil {
			delete(declared, volume.Name)
			changed = true
		}
	}
	for _, volume := range hotplug.Volumes(after) {
		if hotplug.Volume(before, volume.Name) == nil && hotplug.Volume(instance, volume.Name) == nil {
			instance.Volumes = append(instance.Volumes, *volume.DeepCopy())
			instance.Domain.Devices.Disks = append(instance.Domain.Devices.Disks, *hotplug.Disk(after, volume.Name).
				DeepCopy())
			declared[volume.Name] = true
			changed = true
		}
	}
	declare(vmi, declared)
	return changed
}

// declare records which of a VMI's volumes are its VM's.
func declare(vmi *v1.VirtualMachineInstance, declared map[string]bool) {
	value := hotplug.Declare(declared)
	if value == vmi.Annotations[hotplug.DeclaredAnnotation] {
		return
	}
	if vmi.Annotations == nil {
		vmi.Annotations = map[string]string{}
	}
	vmi.Annotations[hotplug.DeclaredAnnotation] = value
}

// limitsWithout returns the patch of annotations that takes the limits of disks away which a spec has no more:
// admission would refuse them.
func limitsWithout(annotations map[string]string, spec *v1.VirtualMachineInstanceSpec) map[string]any {
	out := map[string]any{}
	for key := range annotations {
		if strings.HasPrefix(key, qos.DiskPrefix) && !qos.Device(key, spec) {
			out[key] = nil
		}
	}
	return out
}

// patchVolumes writes the volumes and disks of a VM's template or a VMI.
func (m *machines) patchVolumes(
	ctx context.Context, resource string, object metav1.Object, after *v1.VirtualMachineInstanceSpec, dryRun []string,
) error {
	changes := map[string]any{}
	spec := map[string]any{
		"volumes": after.Volumes,
		"domain":  map[string]any{"devices": map[string]any{"disks": after.Domain.Devices.Disks}},
	}
	if resource == virtualMachines {
		template := map[string]any{"spec": spec}
		if vm, ok := object.(*v1.VirtualMachine); ok {
			if gone := limitsWithout(vm.Spec.Template.ObjectMeta.Annotations, after); len(gone) > 0 {
				template["metadata"] = map[string]any{"annotations": gone}
			}
		}
		spec = map[string]any{"template": template}
	}
	changes["spec"] = spec
	if value, ok := object.GetAnnotations()[hotplug.DeclaredAnnotation]; ok && resource == virtualMachineInstances {
		changes["metadata"] = map[string]any{"annotations": map[string]any{hotplug.DeclaredAnnotation: value}}
	}
	err := m.patch(ctx, resource, object, "", changes, dryRun)
	if apierrors.IsConflict(err) {
		return &conflictingWriteError{err}
	}
	return err
}
