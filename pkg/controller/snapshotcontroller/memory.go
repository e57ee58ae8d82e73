package snapshotcontroller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// A snapshot with memory: before the guest is paused its VMI gets a volume for the memory, which is mounted in the
// launcher's pod; while it is paused the memory is written there, and only then are its volumes snapshotted; afterwards
// the volume is taken away again. The claim is the content's, and goes with it.

// reasonMemorySaved is the reason of an event.
const reasonMemorySaved = "MemorySaved"

// saveLook is the interval of looks whether the memory is saved.
const saveLook = time.Second

// MemorySaver saves the memory of guests.
type MemorySaver interface {
	// SaveMemory pauses a guest and begins to write its memory to a volume, or reports the progress. The guest goes
	// on as after Freezer.Freeze.
	SaveMemory(
		ctx context.Context, vmi types.NamespacedName, volume string, most time.Duration,
	) (savedmemory.Saved, error)
}

// SaveMemory implements MemorySaver.
func (s *subresources) SaveMemory(
	ctx context.Context, vmi types.NamespacedName, volume string, most time.Duration,
) (savedmemory.Saved, error) {
	var answer struct {
		Memory *savedmemory.Saved `json:"memory"`
	}
	body, err := json.Marshal(v1.FreezeUnfreezeTimeout{UnfreezeTimeout: &metav1.Duration{Duration: most}})
	if err != nil {
		return savedmemory.Saved{}, fmt.Errorf("encode the time of a freeze: %w", err)
	}
	text, err := s.put(ctx, vmi, "freeze", map[string]string{"withoutAgent": "pause", "memory": volume}, body)
	if err != nil {
		return savedmemory.Saved{}, err
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Memory == nil {
		return savedmemory.Saved{}, fmt.Errorf("virt-api does not say how far the memory of VMI %s is saved: %q",
			vmi.Name, text)
	}
	return *answer.Memory, nil
}

// unanswered reports an error of SaveMemory that leaves open whether the memory is being saved: virt-api or what it
// asks is away. A virt-handler that has just been started does not know its guests yet.
func unanswered(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || apierrors.IsServiceUnavailable(err) || apierrors.IsNotFound(err) ||
		apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err)
}

// MemoryView holds what a decision about the memory of a content depends on.
type MemoryView struct {
	// Claim is the claim for it, nil when there is none yet.
	Claim *corev1.PersistentVolumeClaim
	// VMI is the VM's, nil for none.
	VMI *v1.VirtualMachineInstance
}

// lookAtMemory finds the claim for the guest's memory and the VMI that writes it.
func (r *Contents) lookAtMemory(ctx context.Context, view *ContentView) error {
	content := view.Content
	if content.Annotations[savedmemory.IncludeAnnotation] != "true" {
		return nil
	}
	view.Memory = &MemoryView{}
	claim := &corev1.PersistentVolumeClaim{}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: content.Namespace, Name: memoryVolume(content)}, claim)
	switch {
	case err == nil:
		view.Memory.Claim = claim
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("get claim for the guest's memory: %w", err)
	}
	vmi := &v1.VirtualMachineInstance{}
	err = r.Live.Get(ctx, vmiOf(content), vmi)
	switch {
	case err == nil:
		view.Memory.VMI = vmi
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("get VMI: %w", err)
	}
	return nil
}

// memoryVolume returns the name of the volume, and of the claim, for the memory that a content is to have.
func memoryVolume(content *v1beta1.VirtualMachineSnapshotContent) string {
	return savedmemory.Volume(content.UID)
}

// plugged reports a VMI that has the volume for its guest's memory.
func (m *MemoryView) plugged(volume string) bool {
	return m != nil && m.VMI != nil && hotplug.Volume(&m.VMI.Spec, volume) != nil
}

// plug returns the VMI with the volume for its guest's memory.
func (m *MemoryView) plug(volume string) *v1.VirtualMachineInstance {
	after := m.VMI.DeepCopy()
	source := v1.MemoryDumpVolumeSource{}
	source.ClaimName, source.Hotpluggable = volume, true
	after.Spec.Volumes = append(after.Spec.Volumes,
		v1.Volume{Name: volume, VolumeSource: v1.VolumeSource{MemoryDump: &source}})
	return after
}

// unplug returns the VMI without that volume; nil when it does not have it.
func (m *MemoryView) unplug(volume string) *v1.VirtualMachineInstance {
	if !m.plugged(volume) {
		return nil
	}
	after := m.VMI.DeepCopy()
	after.Spec.Volumes = slices.DeleteFunc(after.Spec.Volumes, func(v v1.Volume) bool { return v.Name == volume })
	return after
}

// prepareMemory brings the claim for the guest's memory into its launcher's pod, and reports whether it is there.
func (view *ContentView) prepareMemory(step *ContentStep) bool {
	memory, volume := view.Memory, memoryVolume(view.Content)
	record := savedmemory.MemoryOf(view.Content.Annotations)
	switch {
	case view.Guest != GuestRunning || memory.VMI == nil: // the one is of a cache, the other is not
		view.fail(step.Status, "the guest's memory cannot be saved: it does not run any more")
	case record.Failed(memory.VMI.UID):
		// Once is enough: each attempt pauses the guest. One that is started after it may have its memory saved: the
		// save of a guest that ends amid it fails, too.
		view.fail(step.Status, "the guest's memory cannot be saved: "+record.Failure)
		step.VMI, step.RequeueAfter = memory.unplug(volume), retry
		return false
	case memory.Claim == nil:
		step.CreateClaim = view.memoryClaim(volume)
	case !memory.plugged(volume):
		step.VMI = memory.plug(volume)
	default:
		at := slices.IndexFunc(memory.VMI.Status.VolumeStatus, func(s v1.VolumeStatus) bool { return s.Name == volume })
		if at >= 0 && memory.VMI.Status.VolumeStatus[at].Phase == v1.HotplugVolumeMounted {
			return true
		}
		if at >= 0 && memory.VMI.Status.VolumeStatus[at].Phase == v1.VolumePending {
			view.fail(step.Status, "waiting for the claim for the guest's memory: "+
				memory.VMI.Status.VolumeStatus[at].Message)
		}
	}
	step.RequeueAfter = saveLook
	return false
}

// memoryClaim returns the claim for the guest's memory, of the storage of the VM's first volume.
func (view *ContentView) memoryClaim(name string) *corev1.PersistentVolumeClaim {
	vmi, content := view.Memory.VMI, view.Content
	need := sizing.Written(vmi) + sizing.SavedRoom
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: content.Namespace, Name: name,
			Labels: map[string]string{
				snapshots.LabelSourceName:      names.LabelValue(content.Spec.Source.VirtualMachine.Name),
				snapshots.LabelSourceNamespace: content.Namespace,
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(content, ContentKind)},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			VolumeMode:  new(corev1.PersistentVolumeFilesystem),
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: *sizing.FileClaim(need)},
			},
		},
	}
	if backups := content.Spec.VolumeBackups; len(backups) > 0 {
		claim.Spec.StorageClassName = backups[0].PersistentVolumeClaim.Spec.StorageClassName
	}
	return claim
}

// macs returns the addresses of the guest's interfaces, by name.
func (m *MemoryView) macs() map[string]string {
	out := map[string]string{}
	for _, status := range m.VMI.Status.Interfaces {
		if status.Name != "" && status.MAC != "" {
			out[status.Name] = status.MAC
		}
	}
	return out
}

// describeMemory returns what a snapshot reports about the guest's memory that it has; nil when it has none.
func describeMemory(content *v1beta1.VirtualMachineSnapshotContent) *v1beta1.SourceIndication {
	if content == nil {
		return nil
	}
	memory := savedmemory.MemoryOf(content.Annotations)
	if !memory.Whole() {
		return nil
	}
	message := fmt.Sprintf("The guest's memory, %d MiB, is in claim %s; a restore in place resumes the guest from it.",
		(memory.Size+1<<20-1)>>20, memory.Claim)
	if memory.Stood.Duration > 0 {
		message += fmt.Sprintf(" The guest stood still for %s.", memory.Stood.Round(time.Millisecond))
	}
	return &v1beta1.SourceIndication{Indication: snapshots.WithMemory, Message: message}
}

// lacksMemory reports an indication of a snapshot that does not have what the guest held in memory.
func lacksMemory(indication v1beta1.Indication) bool {
	return indication == v1beta1.VMSnapshotNoGuestAgentIndication || indication == v1beta1.VMSnapshotPausedIndication
}
