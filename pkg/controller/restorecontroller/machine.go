package restorecontroller

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/identity"
	"github.com/virtkit/virtkit/pkg/vm/instancetype"
	"github.com/virtkit/virtkit/pkg/vm/reserved"
	"github.com/virtkit/virtkit/pkg/vm/runstrategy"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// commit writes the target, or makes it. All that it needs is there.
func (v *View) commit() Step {
	vm, err := v.machine()
	if err != nil {
		return v.stuck(err.Error())
	}
	step := Step{Status: v.status(textUpdating, textAwaiting)}
	if trouble := v.revise(vm, &step); trouble != "" {
		return v.stuck(trouble)
	}
	if err := v.keepFormer(vm, &step); err != nil {
		return v.stuck(err.Error())
	}
	if err := v.resume(vm, &step); err != nil {
		return v.stuck(err.Error())
	}
	if v.VM != nil {
		step.VM = vm
		return step
	}
	if step.CreateVM, err = v.patched(vm); err != nil {
		return v.giveUp(unpatched(vm, err))
	}
	if left := v.foreign(); len(left) > 0 {
		step.Events = []Event{{corev1.EventTypeWarning, reasonLeftOut, leftOut(vm.Name, left)}}
		step.MadeEvents = step.Events
	}
	return step
}

// patched returns a new target with the restore's patches. Whatever they say, it is the target, and this restore made
// it.
func (v *View) patched(vm *v1.VirtualMachine) (*v1.VirtualMachine, error) {
	out, err := Patch(vm, v.Restore.Spec.Patches)
	if err != nil {
		return nil, err
	}
	out.Namespace, out.Name, out.GenerateName = v.Restore.Namespace, v.Restore.Spec.Target.Name, ""
	metav1.SetMetaDataAnnotation(&out.ObjectMeta, LastAnnotation, mark(v.Restore))
	return out, nil
}

// rehearsed returns a new target as it will be made of what is restored, with the snapshot's ControllerRevisions; nil
// while it cannot be made, such as while a ControllerRevision is missing.
func (v *View) rehearsed(restores []v1beta1.VolumeRestore) *v1.VirtualMachine {
	if v.VM != nil {
		return nil
	}
	then := *v
	then.Restore = v.Restore.DeepCopy()
	then.Restore.Status.Restores = restores
	vm, err := then.machine()
	missing := func(revision string) bool { return v.Revisions[revision] == nil }
	if err != nil || slices.ContainsFunc(instancetype.RevisionNames(&vm.Spec), missing) {
		return nil
	}
	out, err := then.patched(vm)
	if err != nil {
		return nil
	}
	return out
}

// unpatchable returns why the target cannot be made with the restore's patches, before anything is made for it, or ""
// when it can. A snapshot's VM does not change, so this does not pass.
func (v *View) unpatchable() string {
	if v.VM != nil {
		return ""
	}
	vm, err := v.machine()
	if err != nil {
		return err.Error()
	}
	if _, err := Patch(vm, v.Restore.Spec.Patches); err != nil {
		return unpatched(vm, err)
	}
	return ""
}

func unpatched(vm *v1.VirtualMachine, err error) string {
	return fmt.Sprintf("error patching VM %s: %v", vm.Name, err)
}

func leftOut(vm string, volumes []string) string {
	return fmt.Sprintf("VM %s is without %s: the snapshot does not have them", vm, strings.Join(volumes, ", "))
}

// machine returns the target VM as it will be, without the patches.
func (v *View) machine() (*v1.VirtualMachine, error) {
	source := v.Content.Spec.Source.VirtualMachine
	spec := source.Spec.DeepCopy()
	spec.DataVolumeTemplates = v.templates(v.Restore.Status.Restores)
	spec.Template.Spec.Volumes = v.volumes()
	v.unplug(spec)
	vm := v.VM.DeepCopy()
	if vm == nil {
		vm = &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{
			Namespace: v.Restore.Namespace, Name: v.Restore.Spec.Target.Name,
			Labels: maps.Clone(source.Labels), Annotations: reserved.Without(source.Annotations),
		}}
		for _, renamed := range []string{identity.RenamedTo, identity.RenamedFrom, identity.RenamingFrom} {
			delete(vm.Annotations, renamed)
		}
		runstrategy.Set(spec, v1.RunStrategyHalted) // it does not start by itself
	} else if err := keepStrategy(spec, vm); err != nil {
		return nil, err
	}
	vm.Spec = *spec
	reserved.Drop(vm.Spec.Template.ObjectMeta.Annotations)
	metav1.SetMetaDataAnnotation(&vm.ObjectMeta, LastAnnotation, mark(v.Restore))
	if v.sameVM() {
		firmware := &vm.Spec.Template.Spec.Domain.Firmware
		if *firmware == nil {
			*firmware = &v1.Firmware{}
		}
		if (*firmware).UUID == "" {
			(*firmware).UUID = identity.UUID(vm.Name)
		}
	} else {
		// A guest of another name or namespace is another one, which its cloud-init is to notice.
		delete(vm.Spec.Template.ObjectMeta.Annotations, identity.KnownAs)
	}
	return vm, nil
}

// keepStrategy leaves a VM the run strategy that it has now; one that has spec.running is off, as in KubeVirt.
func keepStrategy(spec *v1.VirtualMachineSpec, vm *v1.VirtualMachine) error {
	strategy, err := vm.RunStrategy()
	spec.Running = vm.Spec.Running
	if err == nil && spec.Running != nil {
		strategy = v1.RunStrategyHalted
	}
	runstrategy.Set(spec, strategy)
	return err
}

// entry returns the status's entry for a volume, nil for a volume that is not restored.
func entry(restores []v1beta1.VolumeRestore, volume string) *v1beta1.VolumeRestore {
	for i := range restores {
		if restores[i].VolumeName == volume {
			return &restores[i]
		}
	}
	return nil
}

// templates returns the restored VM's dataVolumeTemplates: those of its restored volumes have other names.
func (v *View) templates(restores []v1beta1.VolumeRestore) []v1.DataVolumeTemplateSpec {
	source := &v.Content.Spec.Source.VirtualMachine.Spec
	var out []v1.DataVolumeTemplateSpec
	for i := range source.DataVolumeTemplates {
		template := source.DataVolumeTemplates[i].DeepCopy()
		for _, o := range source.Template.Spec.Volumes {
			if o.DataVolume != nil && o.DataVolume.Name == template.Name && entry(restores, o.Name) != nil {
				template.Name = restoredName(v.Restore, o.Name, template.Name)
				break
			}
		}
		out = append(out, *template)
	}
	return out
}

// volumes returns the restored VM's volumes: its claims are the restored ones, and a DataVolume that it has no template
// for is the claim.
func (v *View) volumes() []v1.Volume {
	source := &v.Content.Spec.Source.VirtualMachine.Spec.Template.Spec
	var out []v1.Volume
	for i := range source.Volumes {
		volume := source.Volumes[i].DeepCopy()
		restored := entry(v.Restore.Status.Restores, volume.Name)
		switch {
		case volume.MemoryDump != nil:
			continue
		case restored == nil:
		case volume.PersistentVolumeClaim != nil:
			volume.PersistentVolumeClaim.ClaimName = restored.PersistentVolumeClaimName
		case volume.DataVolume != nil:
			if template := v.template(volume.Name); template != nil {
				volume.DataVolume.Name = restoredName(v.Restore, volume.Name, template.Name)
				break
			}
			claim := &v1.PersistentVolumeClaimVolumeSource{Hotpluggable: volume.DataVolume.Hotpluggable}
			claim.ClaimName = restored.PersistentVolumeClaimName
			volume.VolumeSource = v1.VolumeSource{PersistentVolumeClaim: claim}
		}
		out = append(out, *volume)
	}
	return out
}

// sameVM reports a target that is the snapshot's VM by name and namespace, be it there or not.
func (v *View) sameVM() bool {
	source := v.Content.Spec.Source.VirtualMachine
	return v.Restore.Spec.Target.Name == source.Name &&
		(source.Namespace == "" || source.Namespace == v.Restore.Namespace)
}

// foreign returns the volumes of the snapshot's VM that a target of another name or namespace must not have: claims
// that the snapshot leaves out are the other VM's still, whose disks the target's guest would write to.
func (v *View) foreign() (volumes []string) {
	source := v.Content.Spec.Source.VirtualMachine
	if v.sameVM() {
		return nil
	}
	for i := range source.Spec.Template.Spec.Volumes {
		volume := &source.Spec.Template.Spec.Volumes[i]
		kept := func(o Volume) bool { return o.Backup.VolumeName == volume.Name }
		if claims.Storage(volume) && !slices.ContainsFunc(v.Volumes, kept) {
			volumes = append(volumes, volume.Name)
		}
	}
	return volumes
}

// unplug takes the volumes that are another VM's, their disks and templates out of the target's spec.
func (v *View) unplug(spec *v1.VirtualMachineSpec) {
	foreign := v.foreign()
	guest := &spec.Template.Spec
	for i := range guest.Volumes {
		if dv := guest.Volumes[i].DataVolume; dv != nil && slices.Contains(foreign, guest.Volumes[i].Name) {
			spec.DataVolumeTemplates = slices.DeleteFunc(spec.DataVolumeTemplates,
				func(t v1.DataVolumeTemplateSpec) bool { return t.Name == dv.Name })
		}
	}
	guest.Volumes = slices.DeleteFunc(guest.Volumes,
		func(o v1.Volume) bool { return slices.Contains(foreign, o.Name) })
	devices := &guest.Domain.Devices
	devices.Disks = slices.DeleteFunc(devices.Disks,
		func(o v1.Disk) bool { return slices.Contains(foreign, o.Name) })
	devices.Filesystems = slices.DeleteFunc(devices.Filesystems,
		func(o v1.Filesystem) bool { return slices.Contains(foreign, o.Name) })
}

// Patch returns a VM with JSON patches applied, each an operation. A replacement of a missing field adds it, as in
// KubeVirt; one of a field that a VM cannot have is an error, since the API server would drop it silently.
func Patch(vm *v1.VirtualMachine, patches []string) (*v1.VirtualMachine, error) {
	if len(patches) == 0 {
		return vm, nil
	}
	before, err := json.Marshal(vm)
	if err != nil {
		return nil, fmt.Errorf("cannot marshall VM %s: %w", vm.Name, err)
	}
	text := "[" + strings.Join(patches, ",\n") + "]"
	patch, err := jsonpatch.DecodePatch([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("cannot decode vm patches %s: %w", text, err)
	}
	after, err := patch.Apply(before)
	if err != nil {
		return nil, fmt.Errorf("failed to apply patch for VM %s: %w", text, err)
	}
	if unknown := surface.UnknownFields[v1.VirtualMachine](after); len(unknown) > 0 {
		return nil, fmt.Errorf("a VM has no field %s; correct the path or the value in the patches %s",
			strings.Join(unknown, ", "), text)
	}
	out := &v1.VirtualMachine{}
	if err := json.Unmarshal(after, out); err != nil {
		return nil, fmt.Errorf("what the patches make is no VM: %w", err)
	}
	if key := writtenIn(out, vm); key != "" {
		return nil, fmt.Errorf("a patch %s", reserved.Refusal(key))
	}
	return out, nil
}

// writtenIn returns the annotation of the components that patches have written to a VM or its template, or "".
// Admission refuses patches that name one; what they copy is known here only.
func writtenIn(now, before *v1.VirtualMachine) string {
	if key := reserved.Changed(now.Annotations, before.Annotations); key != "" {
		return key
	}
	of := func(vm *v1.VirtualMachine) map[string]string {
		if vm.Spec.Template == nil {
			return nil
		}
		return vm.Spec.Template.ObjectMeta.Annotations
	}
	return reserved.Changed(of(now), of(before))
}

// withOwner returns a list of owners with the VM among them, which controls the object.
func withOwner(owners []metav1.OwnerReference, vm *v1.VirtualMachine) []metav1.OwnerReference {
	return append(slices.Clone(owners), ownerOf(vm))
}

// bound reports a claim that has a volume.
func bound(claim *corev1.PersistentVolumeClaim) bool { return claim.Status.Phase == corev1.ClaimBound }
