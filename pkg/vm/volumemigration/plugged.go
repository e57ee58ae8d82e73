package volumemigration

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
)

// KeepPlugged leaves in a template the claims that a guest has plugged in, where their disks are copied, or are to be
// by the VM's updateVolumesStrategy: what names another claim must not be taken for a disk to unplug, and another to
// plug in (hotplug.Follow). Follow says what becomes of them. Discs in CD-ROM drives are exchanged all the same.
func KeepPlugged(
	strategy *v1.UpdateVolumesStrategy, template *v1.VirtualMachineInstanceSpec, vmi *v1.VirtualMachineInstance,
) {
	copies := strategy != nil && *strategy == v1.UpdateVolumesStrategyMigration
	for i := range template.Volumes {
		want := &template.Volumes[i]
		is := hotplug.Volume(&vmi.Spec, want.Name)
		if is == nil || !pluggedDisk(vmi, is, want) || claims.Name(is) == claims.Name(want) ||
			!copies && !hotplug.Copied(vmi, is) {
			continue
		}
		*want = *is.DeepCopy()
		if d := hotplug.Disk(template, want.Name); d != nil {
			*d = *hotplug.Disk(&vmi.Spec, want.Name).DeepCopy()
		}
	}
}

// pluggedDisk reports whether a VMI and its VM's template have a volume as a hotplugged disk, on a claim.
func pluggedDisk(vmi *v1.VirtualMachineInstance, is, want *v1.Volume) bool {
	disk := hotplug.Disk(&vmi.Spec, is.Name)
	return disk != nil && disk.CDRom == nil && claims.Storage(is) && claims.Storage(want) && hotplug.Is(is) &&
		hotplug.Is(want)
}

// unplugs reports a hotplugged volume that is not being copied: where disks are not copied, it is unplugged when the VM
// names another claim, and that one plugged in.
func unplugs(vmi *v1.VirtualMachineInstance, volume string) bool {
	v := hotplug.Volume(&vmi.Spec, volume)
	return v != nil && hotplug.Is(v) && !hotplug.Copied(vmi, v)
}

// follows reports whether a volume is a disk, on a claim, that the guest has and its VM still names: from its start in
// both, or hotplugged in both.
func follows(vmi *v1.VirtualMachineInstance, is, want *v1.Volume) bool {
	if hotplug.Is(is) || hotplug.Is(want) {
		return pluggedDisk(vmi, is, want)
	}
	return claims.Storage(is) && claims.Storage(want)
}

// NoteCopies writes hotplug.CopiesAnnotation of next, which is a VMI with the volumes that it is about to have. begins
// says that disks are to be copied to the claims that are new there.
func NoteCopies(vmi, next *v1.VirtualMachineInstance, begins bool) error {
	text, err := hotplug.NoteCopies(vmi, next.Spec.Volumes, func(volume string) bool {
		was := hotplug.Volume(&vmi.Spec, volume)
		return begins && was != nil && claims.Name(was) != claims.Name(hotplug.Volume(&next.Spec, volume))
	})
	switch {
	case err != nil:
		return err
	case text == "":
		delete(next.Annotations, hotplug.CopiesAnnotation)
	default:
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, hotplug.CopiesAnnotation, text)
	}
	return nil
}

// PluggedFingerprint tells apart the pods that hold hotplugged volumes of a VMI at the target of a migration, by the
// claims for which they were made.
func PluggedFingerprint(spec *v1.VirtualMachineInstanceSpec, volumes []string) string {
	var all []string
	for _, name := range volumes {
		if v := hotplug.Volume(spec, name); v != nil {
			all = append(all, name+"="+claims.Name(v))
		}
	}
	slices.Sort(all)
	return names.Hash(strings.Join(all, "\n"), 16)
}
