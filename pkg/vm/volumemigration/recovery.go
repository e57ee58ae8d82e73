package volumemigration

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// UpdateState returns status.volumeUpdateState of a VM: the volumes that are being copied, or, once its guest ends,
// those for which the VM names claims to which nothing was copied, or a part. vmi is nil when there is none: then the
// status itself says what was left uncopied, as long as the VM names one of these claims.
func UpdateState(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) *v1.VolumeUpdateState {
	if life.Staying(vmi) {
		return stateOf(underWay(vmi))
	}
	if accepts(vm) {
		return nil
	}
	if vmi != nil && !seen(vm, vmi) {
		if state := stateOf(infosAt(vmi, Uncopied(vm, vmi))); state != nil {
			return state
		}
	}
	known := vm.Status.VolumeUpdateState
	if !Says(vm) || landedOn(vmi, known) || !named(vm, known) {
		return nil
	}
	return known
}

// Uncopied returns the volumes for which a VM names other claims than its guest uses, or used when it ended, and which
// are of the kind that is copied: those claims do not have the guest's data, whatever was begun. What is never copied,
// such as a CD-ROM, is not among them.
func Uncopied(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) []Move {
	if vm.Spec.Template == nil {
		return nil
	}
	var out []Move
	for i := range vm.Spec.Template.Spec.Volumes {
		wants := &vm.Spec.Template.Spec.Volumes[i]
		has := hotplug.Volume(&vmi.Spec, wants.Name)
		if has == nil || !follows(vmi, has, wants) || exchanged(vmi, wants.Name) != "" {
			continue
		}
		from, to := cmp.Or(InUse(&vmi.Status, wants.Name), claims.Name(has)), claims.Name(wants)
		if from != to {
			out = append(out, Move{wants.Name, from, to})
		}
	}
	return out
}

// Noted returns what the status of a VM is to say: UpdateState, or, where the guest has ended and left nothing
// uncopied, a state that says nothing. Claims that the VM names after that are those of a VM without a guest, which
// starts with them.
func Noted(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) *v1.VolumeUpdateState {
	state := UpdateState(vm, vmi)
	if state == nil && vmi != nil && vmi.IsFinal() && !accepts(vm) {
		return &v1.VolumeUpdateState{}
	}
	return state
}

// Unnoted reports whether a VMI must not vanish yet: its guest leaves disks uncopied, and the VM's status, which alone
// says so afterwards, does not.
func Unnoted(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) bool {
	return UpdateState(vm, vmi) != nil && UpdateState(vm, nil) == nil
}

// Says reports whether the status of a VM has disks that are being copied, or were not when its guest ended.
func Says(vm *v1.VirtualMachine) bool {
	return vm.Status.VolumeUpdateState != nil && vm.Status.VolumeUpdateState.VolumeMigrationState != nil
}

// seen reports whether a guest that has ended is known to have left nothing uncopied: Noted.
func seen(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) bool {
	return vmi.IsFinal() && vm.Status.VolumeUpdateState != nil && !Says(vm)
}

// accepts reports whether a VM starts with what its claims have: its spec.updateVolumesStrategy is not Migration. One
// that names claims because of a migration with disks does not accept them before that migration has said so.
func accepts(vm *v1.VirtualMachine) bool {
	strategy := vm.Spec.UpdateVolumesStrategy
	return (strategy == nil || *strategy != v1.UpdateVolumesStrategyMigration) && RecordOf(vm) == nil
}

// named reports whether a VM names a claim to which a disk was to be copied.
func named(vm *v1.VirtualMachine, state *v1.VolumeUpdateState) bool {
	return slices.ContainsFunc(state.VolumeMigrationState.MigratedVolumes, func(m v1.StorageMigratedVolumeInfo) bool {
		if m.DestinationPVCInfo == nil || vm.Spec.Template == nil {
			return false
		}
		v := hotplug.Volume(&vm.Spec.Template.Spec, m.VolumeName)
		return v != nil && claims.Name(v) == m.DestinationPVCInfo.ClaimName
	})
}

// landedOn reports whether a guest has come to the claims to which its disks were to be copied.
func landedOn(vmi *v1.VirtualMachineInstance, state *v1.VolumeUpdateState) bool {
	return vmi != nil && !slices.ContainsFunc(state.VolumeMigrationState.MigratedVolumes,
		func(m v1.StorageMigratedVolumeInfo) bool {
			return m.DestinationPVCInfo == nil || InUse(&vmi.Status, m.VolumeName) != m.DestinationPVCInfo.ClaimName
		})
}

// underWay returns what a VMI's status says is being copied, or what its spec says before the status does.
func underWay(vmi *v1.VirtualMachineInstance) []v1.StorageMigratedVolumeInfo {
	if len(vmi.Status.MigratedVolumes) > 0 {
		return vmi.Status.MigratedVolumes
	}
	return infos(Moves(vmi))
}

func infos(moves []Move) []v1.StorageMigratedVolumeInfo {
	var out []v1.StorageMigratedVolumeInfo
	for _, m := range moves {
		out = append(out, v1.StorageMigratedVolumeInfo{
			VolumeName:         m.Volume,
			SourcePVCInfo:      &v1.PersistentVolumeClaimInfo{ClaimName: m.From},
			DestinationPVCInfo: &v1.PersistentVolumeClaimInfo{ClaimName: m.To},
		})
	}
	return out
}

// infosAt returns infos with what the status of a VMI says of the claims.
func infosAt(vmi *v1.VirtualMachineInstance, moves []Move) []v1.StorageMigratedVolumeInfo {
	out := infos(moves)
	for i := range out {
		for _, m := range vmi.Status.MigratedVolumes {
			if m.VolumeName == out[i].VolumeName && m.SourcePVCInfo != nil && m.DestinationPVCInfo != nil &&
				m.SourcePVCInfo.ClaimName == moves[i].From && m.DestinationPVCInfo.ClaimName == moves[i].To {
				out[i] = *m.DeepCopy()
			}
		}
	}
	return out
}

func stateOf(moved []v1.StorageMigratedVolumeInfo) *v1.VolumeUpdateState {
	if len(moved) == 0 {
		return nil
	}
	return &v1.VolumeUpdateState{VolumeMigrationState: &v1.VolumeMigrationState{MigratedVolumes: moved}}
}

// Unfinished reports whether a VM must not be started: its guest ended before its disks were copied, and it still names
// the claims that do not have them.
func Unfinished(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) bool {
	return !life.Alive(vmi) && UpdateState(vm, vmi) != nil
}

// RecoveryMessage says what is to be done about a VM that is Unfinished, by its UpdateState.
func RecoveryMessage(state *v1.VolumeUpdateState) string {
	var uncopied, had []string
	for _, m := range state.VolumeMigrationState.MigratedVolumes {
		if m.SourcePVCInfo != nil && m.DestinationPVCInfo != nil {
			uncopied = append(uncopied, m.DestinationPVCInfo.ClaimName)
			had = append(had, m.VolumeName+" to "+m.SourcePVCInfo.ClaimName)
		}
	}
	return "the guest ended before its disks were copied, and the new claims do not have their data, or a part only (" +
		strings.Join(uncopied, ", ") + "); to start the VM with what these claims have, set " +
		"spec.updateVolumesStrategy to Replacement; to start it with its data, revert the volumes to the claims that " +
		"they had: " + strings.Join(had, ", ")
}

// Between reports whether a VM names other claims than those with its data, which only the end of a copy changes: its
// guest's disks are being copied, are about to be, or were not copied when it ended.
func Between(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) bool {
	if UpdateState(vm, vmi) != nil {
		return true
	}
	if !life.Alive(vmi) || vm.Spec.Template == nil {
		return false
	}
	d := Follow(vm.Spec.UpdateVolumesStrategy, &vm.Spec.Template.Spec, vmi)
	return d.Volumes != nil || d.Waiting
}

// Away returns what there is to be taken back of a VM, for Revert: its UpdateState, or else the claims that it names
// although its guest does not use them, which were not taken over, or are to be once a migration has ended. It is nil
// when there is nothing.
func Away(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) *v1.VolumeUpdateState {
	if state := UpdateState(vm, vmi); state != nil || !life.Alive(vmi) || vm.Spec.Template == nil ||
		vm.Spec.UpdateVolumesStrategy == nil || *vm.Spec.UpdateVolumesStrategy != v1.UpdateVolumesStrategyMigration {
		return state
	}
	return stateOf(infos(changes(&vm.Spec.Template.Spec, vmi)))
}

// Revert returns a JSON patch that gives a VM the claims again that its status.volumeUpdateState says it had, also
// where a template of its DataVolumes was renamed for the other; "" when there is nothing to change.
func Revert(vm *v1.VirtualMachine) string {
	state := vm.Status.VolumeUpdateState
	if state == nil || state.VolumeMigrationState == nil || vm.Spec.Template == nil {
		return ""
	}
	var all []string
	set := func(claim, path string, index int) {
		all = append(all, fmt.Sprintf(`{"op":"replace","path":%q,"value":%q}`, fmt.Sprintf(path, index), claim))
	}
	volumes := vm.Spec.Template.Spec.Volumes
	for _, m := range state.VolumeMigrationState.MigratedVolumes {
		at := slices.IndexFunc(volumes, func(v v1.Volume) bool { return v.Name == m.VolumeName })
		if at < 0 || m.SourcePVCInfo == nil || claims.Name(&volumes[at]) == m.SourcePVCInfo.ClaimName {
			continue
		}
		had := m.SourcePVCInfo.ClaimName
		made := slices.IndexFunc(vm.Spec.DataVolumeTemplates,
			func(t v1.DataVolumeTemplateSpec) bool { return t.Name == claims.Name(&volumes[at]) })
		if made >= 0 {
			set(had, "/spec/dataVolumeTemplates/%d/metadata/name", made)
		}
		if volumes[at].DataVolume != nil {
			set(had, "/spec/template/spec/volumes/%d/dataVolume/name", at)
		} else {
			set(had, "/spec/template/spec/volumes/%d/persistentVolumeClaim/claimName", at)
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "[" + strings.Join(all, ",") + "]"
}
