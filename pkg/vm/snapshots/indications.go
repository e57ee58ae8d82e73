package snapshots

import (
	"slices"
	"strings"

	"kubevirt.io/api/snapshot/v1beta1"
)

// PartialSnapshot is KubeVirt's indication that volumes which have data are not in the snapshot.
const PartialSnapshot v1beta1.Indication = "PartialSnapshot"

// Quiesced says how a guest was kept from writing while its volumes were snapshotted.
type Quiesced string

// The ways. The first three are virt-api's answers to a freeze.
const (
	// QuiescedAgent is by its agent, which froze its file systems.
	QuiescedAgent Quiesced = "Agent"
	// QuiescedPaused is by pausing the guest, since no agent answered, or it had no file system to freeze.
	QuiescedPaused Quiesced = "Paused"
	// QuiescedAlready is by the user, who had paused the guest before.
	QuiescedAlready Quiesced = "AlreadyPaused"
	// QuiescedNot means not at all: the VMI had no guest yet.
	QuiescedNot Quiesced = "None"
)

var indicationMessages = map[v1beta1.Indication]string{
	v1beta1.VMSnapshotOnlineSnapshotIndication: "The snapshot was made of a running VM; how consistent it is depends " +
		"on how its guest was quiesced.",
	v1beta1.VMSnapshotGuestAgentIndication: "The guest agent froze the file systems while the volumes were " +
		"snapshotted.",
	v1beta1.VMSnapshotNoGuestAgentIndication: "No guest agent froze a file system: none answered, or " +
		"it had none to freeze; the snapshot is as after a power cut.",
	v1beta1.VMSnapshotPausedIndication: "The guest was paused while the volumes were snapshotted; what it held in " +
		"memory is not in the snapshot.",
	v1beta1.VMSnapshotQuiesceTimeoutIndication: "The guest wrote again before all volumes were snapshotted; each is " +
		"as after a power cut, and they may be of different moments.",
	PartialSnapshot: "Volumes with data were left out",
}

// Indications returns a snapshot's indications for a guest that was quiesced so, sorted as in KubeVirt. lapsed says
// that it wrote again too early.
func Indications(quiesced Quiesced, lapsed bool) []v1beta1.Indication {
	var out []v1beta1.Indication
	switch quiesced {
	case "":
		return nil
	case QuiescedAgent:
		out = append(out, v1beta1.VMSnapshotGuestAgentIndication)
	case QuiescedPaused:
		out = append(out, v1beta1.VMSnapshotNoGuestAgentIndication, v1beta1.VMSnapshotPausedIndication)
	case QuiescedAlready:
		out = append(out, v1beta1.VMSnapshotPausedIndication)
	default:
		out = append(out, v1beta1.VMSnapshotNoGuestAgentIndication)
	}
	out = append(out, v1beta1.VMSnapshotOnlineSnapshotIndication)
	if lapsed {
		out = append(out, v1beta1.VMSnapshotQuiesceTimeoutIndication)
	}
	slices.Sort(out)
	return out
}

// Describe returns indications with their messages. leftOut are the volumes with data that the snapshot does not have.
func Describe(list []v1beta1.Indication, leftOut []Volume) []v1beta1.SourceIndication {
	var out []v1beta1.SourceIndication
	for _, indication := range list {
		message := indicationMessages[indication]
		if indication == PartialSnapshot {
			message += ": " + Reasons(leftOut) + "."
		}
		out = append(out, v1beta1.SourceIndication{Indication: indication, Message: message})
	}
	return out
}

// Reasons returns volumes that were left out, each with its reason.
func Reasons(volumes []Volume) string {
	parts := make([]string, 0, len(volumes))
	for _, volume := range volumes {
		parts = append(parts, volume.Name+" ("+volume.Reason+")")
	}
	return strings.Join(parts, ", ")
}

// Split returns the volumes that a content has and those that it has not, with reasons.
func Split(volumes []Volume, content *v1beta1.VirtualMachineSnapshotContent) (included []string, excluded []Volume) {
	has := func(name string) bool {
		return slices.ContainsFunc(content.Spec.VolumeBackups,
			func(b v1beta1.VolumeBackup) bool { return b.VolumeName == name })
	}
	for _, backup := range content.Spec.VolumeBackups {
		included = append(included, backup.VolumeName)
	}
	for _, volume := range volumes {
		if has(volume.Name) {
			continue
		}
		if volume.Reason == "" {
			volume.Reason = "could not be snapshotted when the snapshot began"
		}
		excluded = append(excluded, volume)
	}
	return included, excluded
}
