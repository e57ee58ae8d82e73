package snapshots

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// Class is a VolumeSnapshotClass.
type Class struct {
	Name, Driver string
	// Default says that it has the annotation DefaultClassAnnotation.
	Default bool
}

// DefaultClassAnnotation is on the VolumeSnapshotClass to be taken where a driver has several.
const DefaultClassAnnotation = "snapshot.storage.kubernetes.io/is-default-class"

// Classes are the classes of storage and of snapshots of a cluster.
type Classes struct {
	// Provisioners are the StorageClasses' provisioners, Preferred the VolumeSnapshotClasses that CDI's StorageProfiles
	// name, both by the name of the StorageClass.
	Provisioners, Preferred map[string]string
	// Late are the StorageClasses that bind a claim when a pod uses it.
	Late      map[string]bool
	Snapshots []Class
}

// For returns the VolumeSnapshotClass for a volume whose claim is of a StorageClass; name is empty when there is none,
// and reason says why, in KubeVirt's words.
func (c Classes) For(storageClass, volume string) (name, reason string) {
	name, trouble := c.Of(storageClass)
	if name == "" && trouble == "" {
		trouble = fmt.Sprintf("No VolumeSnapshotClass: Volume snapshots are not configured for this "+
			"StorageClass [%s] [%s]", storageClass, volume)
	}
	return name, trouble
}

// Of returns the VolumeSnapshotClass for claims of a StorageClass: the one that its StorageProfile names, the only one
// of its driver, or that driver's default. It is empty when there is none; trouble says that it cannot be chosen.
func (c Classes) Of(storageClass string) (name, trouble string) {
	provisioner, ok := c.Provisioners[storageClass]
	if !ok {
		return "", ""
	}
	if preferred := c.Preferred[storageClass]; preferred != "" {
		if slices.ContainsFunc(c.Snapshots, func(s Class) bool { return s.Name == preferred }) {
			return preferred, ""
		}
		return "", ""
	}
	var matches []Class
	for _, class := range c.Snapshots {
		if class.Driver == provisioner {
			matches = append(matches, class)
		}
	}
	switch len(matches) {
	case 0:
		return "", ""
	case 1:
		return matches[0].Name, ""
	}
	for _, class := range matches {
		if class.Default {
			return class.Name, ""
		}
	}
	return "", fmt.Sprintf("%d matching VolumeSnapshotClasses for %s; annotate one with %s", len(matches), storageClass,
		DefaultClassAnnotation)
}

// Volume is a volume of a VM as a snapshot sees it.
type Volume struct {
	Name string
	// Claim is empty for a volume that no snapshot has, such as a container disk.
	Claim string
	// StorageClass is the claim's, Class the VolumeSnapshotClass for it.
	StorageClass, Class string
	// Reason is the reason why no snapshot has the volume, or "" when one would have it.
	Reason string
}

// Facts hold the cluster's facts that Volumes needs.
type Facts struct {
	// Claims are the existing claims of the VM's volumes, by name. State is the claim of its persistent state, nil for
	// none.
	Claims  map[string]*corev1.PersistentVolumeClaim
	State   *corev1.PersistentVolumeClaim
	Classes Classes
}

// Volumes returns the volumes of a VM: those of its template, those that are plugged into its VMI only, and its
// persistent state. vmi is nil when there is none.
func Volumes(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, facts Facts) []Volume {
	var out []Volume
	if vm.Spec.Template == nil {
		return nil
	}
	for i := range vm.Spec.Template.Spec.Volumes {
		volume := facts.volume(vm, &vm.Spec.Template.Spec.Volumes[i])
		if volume.Reason == "" && vmi == nil && facts.unbound(volume.Claim) {
			volume.Reason = fmt.Sprintf("PVC %s %s", volume.Claim, boundAtStart)
		}
		out = append(out, volume)
	}
	for _, volume := range Plugged(vm, vmi) {
		out = append(out, facts.volume(vm, volume))
	}
	if facts.State != nil && KeepsState(vm, vmi) {
		volume := Volume{Name: StateVolume(vm.Name), Claim: facts.State.Name}
		facts.classify(&volume, storageClass(facts.State))
		out = append(out, volume)
	}
	return out
}

// KeepsState reports whether a VM may have persistent state. Its preference, too, may ask for that.
func KeepsState(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) bool {
	return vm.Spec.Preference != nil || vm.Spec.Template != nil && vmstate.Needed(&vm.Spec.Template.Spec) ||
		vmi != nil && vmstate.Needed(&vmi.Spec)
}

// HasState reports whether a snapshot has its VM's persistent state, or the VM's template asks for such a state.
func HasState(content *v1beta1.VirtualMachineSnapshotContent) bool {
	source := content.Spec.Source.VirtualMachine
	if source == nil {
		return false
	}
	return source.Spec.Template != nil && vmstate.Needed(&source.Spec.Template.Spec) ||
		slices.ContainsFunc(content.Spec.VolumeBackups, func(backup v1beta1.VolumeBackup) bool {
			return backup.VolumeName == StateVolume(source.Name)
		})
}

// Plugged returns the volumes that are plugged into a VM's VMI and that its template does not have. A memory dump
// is none.
func Plugged(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) []*v1.Volume {
	if vmi == nil || vm.Spec.Template == nil {
		return nil
	}
	var out []*v1.Volume
	for _, volume := range hotplug.Volumes(&vmi.Spec) {
		if volume.MemoryDump == nil && hotplug.Volume(&vm.Spec.Template.Spec, volume.Name) == nil {
			out = append(out, volume)
		}
	}
	return out
}

// WithPlugged adds to spec, a copy of the VM's template, the volumes that are plugged into its VMI only, with their
// disks: a snapshot has them, too.
func WithPlugged(spec *v1.VirtualMachineInstanceSpec, vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) {
	for _, volume := range Plugged(vm, vmi) {
		spec.Volumes = append(spec.Volumes, *volume.DeepCopy())
		if disk := hotplug.Disk(&vmi.Spec, volume.Name); disk != nil {
			spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, *disk.DeepCopy())
		}
	}
}

// Claim returns the name of the claim of a volume that a snapshot can have; empty for another. What a guest writes to
// an ephemeral volume is not on its claim.
func Claim(volume *v1.Volume) string {
	if volume.PersistentVolumeClaim == nil && volume.DataVolume == nil && volume.MemoryDump == nil {
		return ""
	}
	return claims.Name(volume)
}

func (f Facts) volume(vm *v1.VirtualMachine, volume *v1.Volume) Volume {
	out := Volume{Name: volume.Name, Claim: Claim(volume)}
	if out.Claim == "" {
		out.Reason = fmt.Sprintf("Snapshot is not supported for this volumeSource type [%s]", volume.Name)
		return out
	}
	claim := f.Claims[out.Claim]
	switch {
	case claim != nil:
		f.classify(&out, storageClass(claim))
	case templateClass(vm, volume) != "":
		f.classify(&out, templateClass(vm, volume))
	default:
		out.Reason = "PVC not found"
	}
	return out
}

// boundAtStart ends the reason of a claim that no snapshot can have before its VM was started. A snapshot does not
// leave it out, but waits for it, as KubeVirt's does.
const boundAtStart = "is bound when the VM is started for the first time"

// unbound reports a claim that nobody binds before the VM is started.
func (f Facts) unbound(name string) bool {
	claim := f.Claims[name]
	return claim != nil && claim.DeletionTimestamp == nil && claim.Status.Phase == corev1.ClaimPending &&
		f.Classes.Late[storageClass(claim)] && !claims.BindsAtOnce(claim)
}

// classify fills in the class for a volume, or why there is none.
func (f Facts) classify(volume *Volume, storageClass string) {
	volume.StorageClass = storageClass
	volume.Class, volume.Reason = f.Classes.For(storageClass, volume.Name)
}

func storageClass(claim *corev1.PersistentVolumeClaim) string {
	if claim.Spec.StorageClassName == nil {
		return ""
	}
	return *claim.Spec.StorageClassName
}

// templateClass returns the StorageClass that a DataVolume without a claim is to have.
func templateClass(vm *v1.VirtualMachine, volume *v1.Volume) string {
	if volume.DataVolume == nil {
		return ""
	}
	for i := range vm.Spec.DataVolumeTemplates {
		template := &vm.Spec.DataVolumeTemplates[i]
		if template.Name != volume.DataVolume.Name {
			continue
		}
		if pvc := template.Spec.PVC; pvc != nil && pvc.StorageClassName != nil {
			return *pvc.StorageClassName
		}
		if storage := template.Spec.Storage; storage != nil && storage.StorageClassName != nil {
			return *storage.StorageClassName
		}
	}
	return ""
}

// Statuses returns the volumes' entries in a VM's status.
func Statuses(volumes []Volume) []v1.VolumeSnapshotStatus {
	var out []v1.VolumeSnapshotStatus
	for _, volume := range volumes {
		out = append(out, v1.VolumeSnapshotStatus{
			Name: volume.Name, Enabled: volume.Reason == "", Reason: volume.Reason,
		})
	}
	return out
}
