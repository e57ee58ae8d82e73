package hotplug

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/claims"
)

// Moving returns the names of the hotplugged volumes that the guest has, and takes along when it moves to another node.
// busy says, when it is not empty, that one is just being plugged in or taken away, so that the guest has to wait. One
// that has not got as far as this node is plugged in where the guest is then.
func Moving(vmi *v1.VirtualMachineInstance) (volumes []string, busy string) {
	vmi = AtSource(vmi)
	for i := range vmi.Status.VolumeStatus {
		s := &vmi.Status.VolumeStatus[i]
		if s.HotplugVolume == nil {
			continue
		}
		volume := Volume(&vmi.Spec, s.Name)
		leaves := volume == nil || !Is(volume) ||
			s.PersistentVolumeClaimInfo != nil && s.PersistentVolumeClaimInfo.ClaimName != claims.Name(volume)
		switch s.Phase {
		case "", v1.VolumePending, v1.VolumeBound, v1.HotplugVolumeUnMounted:
			continue
		case v1.VolumeReady:
			volumes = append(volumes, s.Name)
			if !leaves {
				continue
			}
		case v1.HotplugVolumeDetaching:
			leaves = true
		}
		if leaves {
			busy = fmt.Sprintf("volume %q is being taken away", s.Name)
		} else {
			busy = fmt.Sprintf("volume %q is being plugged in", s.Name)
		}
	}
	return volumes, busy
}

// TargetAttachment returns the name of the pod that holds the claims of volumes on the node to which a guest moves. It
// depends on the migration and the volumes alone, so that all agree on it.
func TargetAttachment(migration types.UID, volumes []string) string {
	sorted := slices.Sorted(slices.Values(volumes))
	return names.HotplugPodPrefix + names.Hash(string(migration)+"\x00"+strings.Join(sorted, "\x00"), 10)
}

// UseTargetPod sets the attachment pod of a migrated guest's volumes to the one on its new node. Volumes that were not
// attached yet begin anew there.
func UseTargetPod(vmi *v1.VirtualMachineInstance, list []v1.VolumeStatus) {
	volumes, _ := Moving(vmi)
	moved := map[string]bool{}
	for _, name := range volumes {
		moved[name] = true
	}
	ms := vmi.Status.MigrationState
	for i := range list {
		s := &list[i]
		switch {
		case s.HotplugVolume == nil:
		case moved[s.Name]:
			s.HotplugVolume = &v1.HotplugVolumeStatus{
				AttachPodName: TargetAttachment(ms.MigrationUID, volumes),
				AttachPodUID:  ms.TargetAttachmentPodUID,
			}
		case s.Phase == v1.HotplugVolumeUnMounted: // its attachment pod goes as it would have
		default:
			s.HotplugVolume, s.Phase, s.Reason, s.Message, s.Target = &v1.HotplugVolumeStatus{},
				v1.VolumePending, "", "", ""
		}
	}
}
