package volumemigration

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/reserved"
)

// RecordAnnotation is on a VM that names other claims because a migration brings its disks: JSON of a Record. It is
// written and removed in the same patches as the claims, by virt-controller alone.
const RecordAnnotation = reserved.DisksBrought

// Record has what a VM named before a migration brought its disks, so that it can name them again.
type Record struct {
	// Migration and VMI are the UIDs of the migration and of the instance.
	Migration types.UID `json:"migration"`
	VMI       types.UID `json:"vmi"`
	// At is when the VM was changed.
	At metav1.Time `json:"at"`
	// Strategy is spec.updateVolumesStrategy as it was; empty when it was not set.
	Strategy v1.UpdateVolumesStrategy `json:"strategy,omitempty"`
	Disks    []RecordedDisk           `json:"disks"`
}

// RecordedDisk is a volume of a Record.
type RecordedDisk struct {
	// Was is the volume, and Template what the VM would make its DataVolume from, nil where there is no such entry.
	Was      v1.Volume                  `json:"was"`
	Template *v1.DataVolumeTemplateSpec `json:"template,omitempty"`
	// To is the new claim.
	To string `json:"to"`
}

// Exchanged is a volume of a VM that is to be on another claim.
type Exchanged struct{ Volume, To string }

// Operation is one of a JSON patch.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Unchanged has the server refuse a patch of a VM that is not what was read.
func Unchanged(vm *v1.VirtualMachine) Operation {
	return Operation{"replace", "/metadata/resourceVersion", vm.ResourceVersion}
}

// Exchange returns the patch by which a VM names other claims, and has the disks copied. A volume that is a DataVolume
// becomes one on a claim, and what the VM would make the DataVolume from goes: a template of a DataVolume must be named
// by a volume. All volumes are the VM's.
func Exchange(vm *v1.VirtualMachine, list []Exchanged) []Operation {
	ops := []Operation{Unchanged(vm), {"add", "/spec/updateVolumesStrategy", v1.UpdateVolumesStrategyMigration}}
	var unnamed []int
	for _, e := range list {
		at := volumeAt(vm, e.Volume)
		volume := &vm.Spec.Template.Spec.Volumes[at]
		path := fmt.Sprintf("/spec/template/spec/volumes/%d", at)
		if volume.DataVolume == nil {
			ops = append(ops, Operation{"replace", path + "/persistentVolumeClaim/claimName", e.To})
			continue
		}
		onto := OnClaim(e.Volume, e.To)
		onto.PersistentVolumeClaim.Hotpluggable = hotplug.Is(volume)
		ops = append(ops, Operation{"replace", path, onto})
		if template := templateAt(vm, volume.DataVolume.Name); template >= 0 {
			unnamed = append(unnamed, template)
		}
	}
	slices.Sort(unnamed)
	for _, at := range slices.Backward(slices.Compact(unnamed)) {
		ops = append(ops, Operation{Op: "remove", Path: fmt.Sprintf("/spec/dataVolumeTemplates/%d", at)})
	}
	return ops
}

func volumeAt(vm *v1.VirtualMachine, name string) int {
	return slices.IndexFunc(vm.Spec.Template.Spec.Volumes, func(v v1.Volume) bool { return v.Name == name })
}

func templateAt(vm *v1.VirtualMachine, name string) int {
	return slices.IndexFunc(vm.Spec.DataVolumeTemplates,
		func(t v1.DataVolumeTemplateSpec) bool { return t.Name == name })
}

// OnClaim returns a volume on a claim.
func OnClaim(volume, claim string) *v1.Volume {
	source := &v1.PersistentVolumeClaimVolumeSource{}
	source.ClaimName = claim
	return &v1.Volume{Name: volume, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: source}}
}

// Recorded returns the patch of Exchange with a Record of what the VM names now, for a migration of vmi.
func Recorded(
	vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, migration types.UID, list []Exchanged, now metav1.Time,
) ([]Operation, error) {
	record := Record{Migration: migration, VMI: vmi.UID, At: now}
	if s := vm.Spec.UpdateVolumesStrategy; s != nil {
		record.Strategy = *s
	}
	for _, e := range list {
		volume := &vm.Spec.Template.Spec.Volumes[volumeAt(vm, e.Volume)]
		disk := RecordedDisk{Was: *volume.DeepCopy(), To: e.To}
		if volume.DataVolume != nil {
			if at := templateAt(vm, volume.DataVolume.Name); at >= 0 {
				disk.Template = vm.Spec.DataVolumeTemplates[at].DeepCopy()
			}
		}
		record.Disks = append(record.Disks, disk)
	}
	text, err := json.Marshal(record)
	if err != nil {
		return nil, fmt.Errorf("encode what the VM names: %w", err)
	}
	ops := Exchange(vm, list)
	if vm.Annotations == nil {
		return append(ops,
			Operation{"add", "/metadata/annotations", map[string]string{RecordAnnotation: string(text)}}), nil
	}
	return append(ops, Operation{"add", recordPath, string(text)}), nil
}

var recordPath = "/metadata/annotations/" + strings.ReplaceAll(RecordAnnotation, "/", "~1")

// RecordOf returns the Record of a VM, which may be nil; nil when there is none. What is no JSON is none: it was
// written by nobody who could mean it.
func RecordOf(vm *v1.VirtualMachine) *Record {
	if vm == nil || vm.Annotations[RecordAnnotation] == "" {
		return nil
	}
	record := &Record{}
	if json.Unmarshal([]byte(vm.Annotations[RecordAnnotation]), record) != nil {
		return nil
	}
	return record
}

// Copied returns the disks of a Record.
func (r *Record) Copied() []Copied {
	var out []Copied
	for i := range r.Disks {
		d := &r.Disks[i]
		out = append(out, Copied{d.Was.Name, claims.Name(&d.Was), d.To})
	}
	return out
}

// Named reports whether a VM names all claims of a Record.
func (r *Record) Named(vm *v1.VirtualMachine) bool {
	return vm.Spec.Template != nil && !slices.ContainsFunc(r.Disks, func(d RecordedDisk) bool {
		v := hotplug.Volume(&vm.Spec.Template.Spec, d.Was.Name)
		return v == nil || claims.Name(v) != d.To
	})
}

// UnderWay reports whether a VMI's spec names all claims of a Record, and the guest does not use them yet.
func (r *Record) UnderWay(vmi *v1.VirtualMachineInstance) bool {
	moves := Moves(vmi)
	return len(r.Disks) > 0 && !slices.ContainsFunc(r.Disks, func(d RecordedDisk) bool {
		m, ok := moveOf(moves, d.Was.Name)
		return !ok || m.To != d.To
	})
}

// Landed reports whether a guest uses the claims of a Record, as far as is known: vmi is the instance that has the
// VM's name now, or nil. begun says that the guest was being sent. Of an instance that is gone the VM's status says
// whether the copies were whole: UpdateState.
func (r *Record) Landed(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, begun bool) bool {
	if vmi != nil && vmi.UID == r.VMI {
		return !slices.ContainsFunc(r.Disks, func(d RecordedDisk) bool {
			return InUse(&vmi.Status, d.Was.Name) != d.To
		})
	}
	return begun && UpdateState(vm, nil) == nil
}

// Settle returns the patch that removes the Record from a VM whose guest uses the new claims.
func (r *Record) Settle(vm *v1.VirtualMachine) []Operation {
	return []Operation{Unchanged(vm), {Op: "remove", Path: recordPath}}
}

// Undo returns the patch by which a VM names again what a Record says, as far as nobody has changed it since.
func (r *Record) Undo(vm *v1.VirtualMachine) []Operation {
	ops := r.Settle(vm)
	if vm.Spec.Template == nil {
		return ops
	}
	var templates []v1.DataVolumeTemplateSpec
	for _, d := range r.Disks {
		at := volumeAt(vm, d.Was.Name)
		if at < 0 || claims.Name(&vm.Spec.Template.Spec.Volumes[at]) != d.To {
			continue
		}
		ops = append(ops, Operation{"replace", fmt.Sprintf("/spec/template/spec/volumes/%d", at), d.Was})
		if d.Template != nil && templateAt(vm, d.Template.Name) < 0 && !slices.ContainsFunc(templates,
			func(t v1.DataVolumeTemplateSpec) bool { return t.Name == d.Template.Name }) {
			templates = append(templates, *d.Template)
		}
	}
	switch {
	case len(templates) == 0:
	case len(vm.Spec.DataVolumeTemplates) == 0:
		ops = append(ops, Operation{"add", "/spec/dataVolumeTemplates", templates})
	default:
		for _, t := range templates {
			ops = append(ops, Operation{"add", "/spec/dataVolumeTemplates/-", t})
		}
	}
	now := v1.UpdateVolumesStrategy("")
	if s := vm.Spec.UpdateVolumesStrategy; s != nil {
		now = *s
	}
	if now != v1.UpdateVolumesStrategyMigration || r.Strategy == now {
		return ops
	}
	if r.Strategy == "" {
		return append(ops, Operation{Op: "remove", Path: "/spec/updateVolumesStrategy"})
	}
	return append(ops, Operation{"replace", "/spec/updateVolumesStrategy", r.Strategy})
}
