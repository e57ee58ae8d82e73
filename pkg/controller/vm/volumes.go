package vm

import (
	"context"
	"fmt"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/hotplug"
	"github.com/virtkit/virtkit/pkg/surface"
)

// followVolumes brings the hotplugged volumes of a changed VM into its VMI, from which virt-controller (pkg/controller/vmi) and
// virt-handler take them. What the guest can have only when it is started again stays in the view. A guest that moves gets there
// first.
func (r *Reconciler) followVolumes(ctx context.Context, view *View) error {
	instance := view.VMI
	if instance == nil || instance.Status.Phase != v1.Running || instance.DeletionTimestamp != nil || instance.Annotations[TemplateHashAnnotation] == "" {
		return nil
	}
	here := &view.VM.Spec.Template.Spec
	switch {
	case hotplug.Without(here) == here && hotplug.Without(&instance.Spec) == &instance.Spec:
		return nil // nothing there that could come or go
	case refers(view.VM) && upToDate(view.VM, instance):
		return nil // not worth reading what it refers to
	}
	probe := *view
	template, err := r.expand(ctx, &probe)
	if err != nil || template == nil {
		return err // what stands in the way is said when the VM is started
	}
	spec := template.Spec.DeepCopy()
	surface.DefaultDisks(spec)
	view.Volumes = hotplug.Follow(spec, instance, r.Config().LiveUpdate != nil)
	if !view.Volumes.Changed || migrating(instance) {
		return nil
	}
	after := instance.DeepCopy()
	after.Spec.Volumes, after.Spec.Domain.Devices.Disks = view.Volumes.Volumes, view.Volumes.Disks
	after.Annotations[hotplug.DeclaredAnnotation] = view.Volumes.Declared
	if err := r.writes.Patch(ctx, instance, after); err != nil {
		return fmt.Errorf("change the volumes of VMI %s: %w", instance.Name, err)
	}
	view.VMI = after
	return nil
}
