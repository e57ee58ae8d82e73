package backup

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/clones"
	"github.com/virtkit/virtkit/pkg/vm/exports"
	"github.com/virtkit/virtkit/pkg/vm/identity"
	"github.com/virtkit/virtkit/pkg/vm/ipaddress"
	"github.com/virtkit/virtkit/pkg/vm/macaddress"
	"github.com/virtkit/virtkit/pkg/vm/reserved"
	"github.com/virtkit/virtkit/pkg/vm/runstrategy"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

const (
	// LabelImport is on the claims of an import that has not ended, and says of which file and VM. Another run of that
	// import goes on with them. It is taken off before the VM is made: what a VM may have written is never taken for
	// what the file has.
	LabelImport = "backup.virtkit.io/import"
	// AnnotationRun names the run of an import that a claim belongs to, or that has made a VM. No other run deletes
	// the claim.
	AnnotationRun = "backup.virtkit.io/run"
)

// apart are annotations about the VM's life in its cluster.
var apart = []string{
	corev1.LastAppliedConfigAnnotation, snapshots.LastAnnotation, snapshots.FormerAnnotation, identity.RenamedTo,
	identity.RenamedFrom, identity.RenamingFrom,
}

// stored returns a VM, with its instance type and preference written out, as a file has it.
func stored(vm *v1.VirtualMachine) *v1.VirtualMachine {
	out := &v1.VirtualMachine{
		TypeMeta: metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: exports.KindVM},
		ObjectMeta: metav1.ObjectMeta{
			Name: vm.Name, Labels: vm.Labels, Annotations: withoutApart(vm.Annotations),
		},
		Spec: *vm.Spec.DeepCopy(),
	}
	if len(macaddress.Recorded(vm)) == 0 {
		delete(out.Annotations, macaddress.Annotation) // is another VM's
	}
	if len(ipaddress.Recorded(vm)) == 0 {
		delete(out.Annotations, ipaddress.Annotation)
	}
	reserved.Drop(out.Spec.Template.ObjectMeta.Annotations)
	out.Spec.DataVolumeTemplates = slices.DeleteFunc(out.Spec.DataVolumeTemplates,
		func(template v1.DataVolumeTemplateSpec) bool {
			return slices.ContainsFunc(out.Spec.Template.Spec.Volumes, func(volume v1.Volume) bool {
				return claims.Name(&volume) == template.Name
			})
		})
	return out
}

func withoutApart(annotations map[string]string) map[string]string {
	out := reserved.Without(annotations)
	for _, key := range apart {
		delete(out, key)
	}
	return out
}

// Wish is how the VM of a file is to be made.
type Wish struct {
	// Namespace is where, Name the VM's name; empty is the one that it had.
	Namespace, Name string
	// StorageClass and AccessMode are the claims'; empty is the cluster's default class, and the mode that they had.
	StorageClass, AccessMode string
	// KeepIdentity leaves the VM its MAC addresses, its firmware's UUID and serial number, and the name by which its
	// guest knows itself.
	KeepIdentity bool
	// Start starts the VM.
	Start bool
}

// Made is what a file becomes.
type Made struct {
	VM *v1.VirtualMachine
	// Claims are those of the file's disks, in their order.
	Claims []*corev1.PersistentVolumeClaim
	// NotIncluded says what the VM had and this one has not.
	NotIncluded []string
	// Needs are objects of the namespace that the VM names, as KIND NAME.
	Needs []string
	// asked says that the VM starts when it is asked to, rather than by its run strategy.
	asked bool
}

// Make returns what the file becomes. It asks nobody.
func (f *File) Make(wish Wish) (*Made, error) {
	vm := f.VM.DeepCopy()
	name := cmp.Or(wish.Name, f.Index.Name)
	vm.ObjectMeta = metav1.ObjectMeta{
		Namespace: wish.Namespace, Name: name, Labels: maps.Clone(vm.Labels),
		Annotations: withoutApart(vm.Annotations),
	}
	vm.Status = v1.VirtualMachineStatus{}
	reserved.Drop(vm.Spec.Template.ObjectMeta.Annotations)
	vm.Spec.DataVolumeTemplates = nil
	out := &Made{VM: vm}
	renamed := map[string]string{}
	for i := range f.Index.Disks {
		disk := &f.Index.Disks[i]
		claim := disk.make(wish)
		claim.Name, claim.Labels = ClaimName(name, disk.Volume), labelsOf(f.id, name)
		renamed[disk.Claim] = claim.Name
		out.Claims = append(out.Claims, claim)
	}
	out.NotIncluded = append(unplug(&vm.Spec.Template.Spec, renamed), f.Index.NotIncluded...)
	for i := range vm.Spec.Template.Spec.Volumes {
		point(&vm.Spec.Template.Spec.Volumes[i], renamed)
	}
	if err := out.identify(f.Index.Name, wish.KeepIdentity); err != nil {
		return nil, err
	}
	if err := out.strategy(wish.Start); err != nil {
		return nil, err
	}
	out.Needs = Needs(vm)
	return out, nil
}

// ClaimName returns the name of the claim with a volume of a VM.
func ClaimName(vm, volume string) string {
	return names.Shorten(vm+"-"+volume, validation.DNS1123SubdomainMaxLength)
}

// labelsOf returns the labels of the claims of an import of a file that its ID tells from others.
func labelsOf(file, vm string) map[string]string {
	return map[string]string{LabelImport: names.LabelValue(file + "-" + vm)}
}

// Claim returns the claim for a disk of so many bytes, of a file that is no backup. The file's ID tells it from others.
func (w Wish) Claim(name string, size int64, file, vm string) *corev1.PersistentVolumeClaim {
	room := resource.NewQuantity(uploads.Room(size), resource.BinarySI)
	disk := Disk{
		DiskSize: size, ClaimSize: room.String(), VolumeMode: string(corev1.PersistentVolumeFilesystem),
		AccessModes: []string{string(corev1.ReadWriteOnce)},
	}
	claim := disk.make(w)
	claim.Name, claim.Labels = name, labelsOf(file, vm)
	return claim
}

// Needs returns the objects that a VM names, but its claims, as KIND NAME.
func Needs(vm *v1.VirtualMachine) []string {
	return slices.DeleteFunc(clones.Left(&vm.Spec),
		func(object string) bool { return strings.HasPrefix(object, exports.KindClaim+" ") })
}

// make returns the claim for a disk, without its name.
func (d *Disk) make(wish Wish) *corev1.PersistentVolumeClaim {
	mode := corev1.PersistentVolumeMode(d.VolumeMode)
	size, least := *d.size(), d.DiskSize
	if mode == corev1.PersistentVolumeFilesystem {
		least = uploads.Least(d.DiskSize)
	}
	if size.CmpInt64(least) < 0 {
		size = *resource.NewQuantity(least, resource.BinarySI)
	}
	claim := &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: exports.KindClaim},
		ObjectMeta: metav1.ObjectMeta{Namespace: wish.Namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			VolumeMode: &mode,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: size},
			},
		},
	}
	modes := d.AccessModes
	if wish.AccessMode != "" {
		modes = []string{wish.AccessMode}
	}
	for _, access := range modes {
		claim.Spec.AccessModes = append(claim.Spec.AccessModes, corev1.PersistentVolumeAccessMode(access))
	}
	if wish.StorageClass != "" {
		claim.Spec.StorageClassName = &wish.StorageClass
	}
	return claim
}

// unplug takes out of a guest the claims that are not in the file, and returns which: where it is imported, their names
// may be those of others.
func unplug(guest *v1.VirtualMachineInstanceSpec, in map[string]string) (said []string) {
	gone := map[string]bool{}
	guest.Volumes = slices.DeleteFunc(guest.Volumes, func(volume v1.Volume) bool {
		claim := claims.Name(&volume)
		if _, has := in[claim]; claim == "" || has && volume.MemoryDump == nil {
			return false
		}
		gone[volume.Name] = true
		said = append(said, fmt.Sprintf("volume %s (claim %s): the VM is made without it", volume.Name, claim))
		return true
	})
	devices := &guest.Domain.Devices
	devices.Disks = slices.DeleteFunc(devices.Disks, func(disk v1.Disk) bool { return gone[disk.Name] })
	devices.Filesystems = slices.DeleteFunc(devices.Filesystems,
		func(shared v1.Filesystem) bool { return gone[shared.Name] })
	return said
}

// point has a volume use the claim that is made. A DataVolume becomes the claim.
func point(volume *v1.Volume, renamed map[string]string) {
	source := claims.Of(volume)
	if source == nil {
		return
	}
	source.ClaimName = renamed[source.ClaimName]
	if volume.Ephemeral != nil {
		volume.Ephemeral.PersistentVolumeClaim.ClaimName = source.ClaimName
		return
	}
	volume.VolumeSource = v1.VolumeSource{PersistentVolumeClaim: source}
}

// identify gives the VM an identity of its own, or the one that it had under its old name.
func (m *Made) identify(old string, keep bool) error {
	template := m.VM.Spec.Template
	if !keep {
		clones.Fresh(&template.Spec, nil, "")
		delete(template.ObjectMeta.Annotations, identity.KnownAs)
		delete(template.ObjectMeta.Annotations, ipaddress.Wish)
		delete(m.VM.Annotations, macaddress.Annotation)
		delete(m.VM.Annotations, ipaddress.Annotation)
		return nil
	}
	err := errors.Join(macaddress.Move(m.VM, ""), ipaddress.Move(m.VM, ""))
	if err != nil || m.VM.Name == old {
		return err
	}
	firmware := &template.Spec.Domain.Firmware
	if *firmware == nil {
		*firmware = &v1.Firmware{}
	}
	if (*firmware).UUID == "" {
		(*firmware).UUID = identity.UUID(old)
	}
	if template.ObjectMeta.Annotations[identity.KnownAs] == "" {
		metav1.SetMetaDataAnnotation(&template.ObjectMeta, identity.KnownAs, old)
	}
	return nil
}

// strategy has the VM start, or not.
func (m *Made) strategy(start bool) error {
	spec := &m.VM.Spec
	before, err := m.VM.RunStrategy()
	switch {
	case err != nil:
		return fmt.Errorf("%s: the VM's run strategy: %w", vmFile, err)
	case !start:
		if before != v1.RunStrategyManual {
			runstrategy.Set(spec, v1.RunStrategyHalted)
		}
	case before == v1.RunStrategyHalted:
		runstrategy.Set(spec, v1.RunStrategyAlways)
	case before == v1.RunStrategyManual:
		m.asked = true
	}
	return nil
}

// list names things in a sentence.
func list(things []string) string { return strings.Join(things, ", ") }
