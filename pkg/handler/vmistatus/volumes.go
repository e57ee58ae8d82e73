package vmistatus

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
)

// Reasons of hotplugged volumes, in their status and in events. The first three are KubeVirt's.
const (
	ReasonVolumeReady     = "VolumeReady"
	ReasonVolumeMounted   = "VolumeMountedToPod"
	ReasonVolumeUnMounted = "VolumeUnMountedFromPod"
	ReasonAttachFailed    = hotplug.ReasonAttachFailed
	ReasonDetachFailed    = hotplug.ReasonDetachFailed
)

// Volume is the state of a hotplugged volume on this node.
type Volume struct {
	// AttachPod is the attachment pod that it was done for.
	AttachPod types.UID
	// Mounted: the launcher's pod has the volume. Attached: the guest has it, too, as Target. Gone: neither has.
	Mounted, Attached, Gone bool
	Target                  string
	// DumpStarted and DumpEnded are the times of the dump of the guest's memory that the volume takes instead, zero
	// before; DumpFile is its file.
	DumpStarted, DumpEnded time.Time
	DumpFile               string
	// Failure is the reason why it did not get further.
	Failure string
}

// plugged brings the status of hotplugged volumes up to what was done with them.
func plugged(done map[string]Volume, list []v1.VolumeStatus) []v1.VolumeStatus {
	for i := range list {
		s := &list[i]
		volume, known := done[s.Name]
		if !known || s.HotplugVolume == nil || s.HotplugVolume.AttachPodUID != volume.AttachPod {
			continue
		}
		if !volume.DumpStarted.IsZero() && s.Phase != v1.HotplugVolumeDetaching &&
			s.Phase != v1.HotplugVolumeUnMounted {
			dumped(volume, s)
			continue
		}
		set := func(phase v1.VolumePhase, reason, message string) {
			s.Phase, s.Reason, s.Message = phase, reason, message
		}
		switch s.Phase {
		case v1.HotplugVolumeAttachedToNode, v1.HotplugVolumeMounted, v1.VolumeReady:
			switch {
			case volume.Attached:
				set(v1.VolumeReady, ReasonVolumeReady,
					fmt.Sprintf("Successfully attach hotplugged volume %s to VM", s.Name))
				s.Target = volume.Target
			case volume.Mounted:
				set(v1.HotplugVolumeMounted, ReasonVolumeMounted,
					fmt.Sprintf("Volume %s has been mounted in virt-launcher pod", s.Name))
				s.Target = ""
			}
			if volume.Failure != "" {
				s.Reason, s.Message = ReasonAttachFailed, clean(volume.Failure)
			}
		case v1.HotplugVolumeDetaching:
			if volume.Failure != "" {
				s.Reason, s.Message = ReasonDetachFailed, clean(volume.Failure)
			}
			if volume.Gone {
				set(v1.HotplugVolumeUnMounted, ReasonVolumeUnMounted,
					fmt.Sprintf("Volume %s has been unmounted from virt-launcher pod", s.Name))
				s.Target = ""
			}
		}
	}
	return list
}

// dumped sets the progress of the dump of the guest's memory.
func dumped(volume Volume, s *v1.VolumeStatus) {
	at := func(t time.Time) *metav1.Time {
		seconds := metav1.NewTime(t).Rfc3339Copy()
		return &seconds
	}
	s.MemoryDumpVolume = &v1.DomainMemoryDumpInfo{
		ClaimName: s.Name, StartTimestamp: at(volume.DumpStarted),
		TargetFileName: volume.DumpFile,
	}
	s.Phase, s.Reason, s.Message = v1.MemoryDumpVolumeInProgress, "",
		fmt.Sprintf("Memory dump Volume %s is attached, getting memory dump", s.Name)
	if volume.DumpEnded.IsZero() {
		return
	}
	s.MemoryDumpVolume.EndTimestamp = at(volume.DumpEnded)
	s.Phase, s.Message = v1.MemoryDumpVolumeCompleted,
		fmt.Sprintf("Memory dump to Volume %s has completed successfully", s.Name)
	if volume.Failure != "" {
		s.Phase, s.Message = v1.MemoryDumpVolumeFailed,
			fmt.Sprintf("Memory dump to pvc %s failed: %s", s.Name, clean(volume.Failure))
	}
}

// checksums notes which container disks the guest runs from, so that a node to which it moves knows whether it has
// the same.
func checksums(images map[string]uint32, vmi *v1.VirtualMachineInstance, list []v1.VolumeStatus) {
	for i := range list {
		s := &list[i]
		sum := images[s.Name]
		volume := hotplug.Volume(&vmi.Spec, s.Name)
		if sum == 0 || volume == nil || volume.ContainerDisk == nil ||
			s.ContainerDiskVolume != nil && s.ContainerDiskVolume.Checksum == sum {
			continue
		}
		s.ContainerDiskVolume = &v1.ContainerDiskInfo{Checksum: sum}
	}
}

// kernelChecksums notes those of what firmware.kernelBoot booted; a launcher that does not say changes nothing.
func kernelChecksums(images map[string]uint32, next *v1.VirtualMachineInstanceStatus) {
	kernel, initrd := images[names.ChecksumKernel], images[names.ChecksumInitrd]
	if kernel == 0 && initrd == 0 {
		return
	}
	out := &v1.KernelBootStatus{}
	if kernel != 0 {
		out.KernelInfo = &v1.KernelInfo{Checksum: kernel}
	}
	if initrd != 0 {
		out.InitrdInfo = &v1.InitrdInfo{Checksum: initrd}
	}
	next.KernelBootStatus = out
}

// volumeEvents returns the events for what happened to hotplugged volumes between two statuses.
func volumeEvents(old, next []v1.VolumeStatus) []Event {
	before := map[string]v1.VolumeStatus{}
	for _, s := range old {
		before[s.Name] = s
	}
	var out []Event
	for _, s := range next {
		was := before[s.Name]
		if s.HotplugVolume == nil || s.Reason == was.Reason && s.Message == was.Message {
			continue
		}
		switch s.Reason {
		case ReasonVolumeReady, ReasonVolumeMounted, ReasonVolumeUnMounted:
			if was.Phase != s.Phase {
				out = append(out, Event{corev1.EventTypeNormal, s.Reason, s.Message})
			}
		case ReasonAttachFailed, ReasonDetachFailed:
			out = append(out, Event{corev1.EventTypeWarning, s.Reason, fmt.Sprintf("Volume %s: %s", s.Name, s.Message)})
		}
	}
	return out
}
