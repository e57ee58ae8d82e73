package vmcontroller

import (
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/rollout"
	"github.com/virtkit/virtkit/pkg/vm/surface"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// followVolumes brings the hotplugged volumes of a changed VM into its VMI, from which virt-controller
// (pkg/controller/vmicontroller) and virt-handler take them. What the guest can have only when it is started again
// stays in the view. A guest that moves gets there first.
func (view *View) followVolumes() {
	instance := view.VMI
	if !life.Running(instance) || instance.Annotations[rollout.TemplateHashAnnotation] == "" {
		return
	}
	here := &view.VM.Spec.Template.Spec
	switch {
	case hotplug.Without(here) == here && hotplug.Without(&instance.Spec) == &instance.Spec:
		return // nothing there that could come or go
	case refers(view.VM) && upToDate(view.VM, instance):
		return // not worth reading what it refers to
	}
	probe := *view
	template := probe.expand()
	if template == nil {
		return // what stands in the way is said when the VM is started
	}
	spec := template.Spec.DeepCopy()
	surface.DefaultDisks(spec)
	volumemigration.KeepPlugged(view.VM.Spec.UpdateVolumesStrategy, spec, instance)
	view.Volumes = hotplug.Follow(spec, instance, !view.Staged)
	if !view.Volumes.Changed || migrations.Begun(instance) {
		return
	}
	after := instance.DeepCopy()
	after.Spec.Volumes, after.Spec.Domain.Devices.Disks = view.Volumes.Volumes, view.Volumes.Disks
	after.Annotations[hotplug.DeclaredAnnotation] = view.Volumes.Declared
	view.VMI = after
}
