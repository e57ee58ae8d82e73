package volumemigration

import (
	"fmt"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// UpdateState returns status.volumeUpdateState of a VM: the volumes that are being copied, and those whose copies were
// not finished when the guest ended, as long as the VM names the unfinished ones. vmi is nil when there is none.
func UpdateState(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) *v1.VolumeUpdateState {
	if life.Alive(vmi) {
		return stateOf(underWay(vmi))
	}
	if vmi != nil {
		if under := stateOf(underWay(vmi)); under != nil && named(vm, under) {
			return under
		}
	}
	known := vm.Status.VolumeUpdateState
	if known == nil || known.VolumeMigrationState == nil {
		return nil
	}
	if landedOn(vmi, known) || !named(vm, known) {
		return nil
	}
	return known
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

func stateOf(moved []v1.StorageMigratedVolumeInfo) *v1.VolumeUpdateState {
	if len(moved) == 0 {
		return nil
	}
	return &v1.VolumeUpdateState{VolumeMigrationState: &v1.VolumeMigrationState{MigratedVolumes: moved}}
}

// Unfinished reports whether a VM must not be started: its guest ended while its disks were being copied, and it still
// names the claims with the unfinished copies.
func Unfinished(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) bool {
	return !life.Alive(vmi) && UpdateState(vm, vmi) != nil
}

// RecoveryMessage says what is to be done about a VM that is Unfinished, by its UpdateState.
func RecoveryMessage(state *v1.VolumeUpdateState) string {
	text := "the guest ended before its disks were copied, and the copies are not whole; revert the volumes to the " +
		"claims that they had:"
	for i, m := range state.VolumeMigrationState.MigratedVolumes {
		if i > 0 {
			text += ","
		}
		if m.SourcePVCInfo != nil {
			text += " " + m.VolumeName + " to " + m.SourcePVCInfo.ClaimName
		}
	}
	return text
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
