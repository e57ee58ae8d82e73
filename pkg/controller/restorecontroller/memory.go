package restorecontroller

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
)

// Reasons of events about the guest's memory.
const (
	reasonResumes = "MemoryRestored"
	reasonBoots   = "MemoryNotRestored"
)

// resume makes the guest of the restored VM resume from the memory in the snapshot, if there is one and the guest is
// the same. It removes the annotation in which an earlier restore asked for that.
func (v *View) resume(vm *v1.VirtualMachine, step *Step) error {
	delete(vm.Annotations, savedmemory.ResumeAnnotation)
	memory := savedmemory.MemoryOf(v.Content.Annotations)
	if memory == nil {
		return nil
	}
	if why := v.boots(memory); why != "" {
		step.Events = append(step.Events, Event{
			corev1.EventTypeWarning, reasonBoots,
			fmt.Sprintf("The snapshot has the guest's memory, but the guest will boot: %s", why),
		})
		return nil
	}
	mark := savedmemory.Resume{
		Claim: memory.Claim, Restore: v.Restore.UID, Disks: v.disks(), MACs: memory.MACs,
	}
	text, err := mark.Encode()
	if err != nil {
		return err
	}
	metav1.SetMetaDataAnnotation(&vm.ObjectMeta, savedmemory.ResumeAnnotation, text)
	step.Events = append(step.Events, Event{
		corev1.EventTypeNormal, reasonResumes,
		fmt.Sprintf("The guest will go on from its memory in claim %s when the VM starts", memory.Claim),
	})
	return nil
}

// disks returns the UIDs of the claims that the restore has made for the VM's disks, by volume.
func (v *View) disks() map[string]types.UID {
	out := map[string]types.UID{}
	for i := range v.Volumes {
		name, claim := v.Volumes[i].Backup.VolumeName, v.Volumes[i].Claim
		if claim != nil && !isState(name) {
			out[name] = claim.UID
		}
	}
	return out
}

// boots returns why the guest of the restored VM cannot go on from the snapshot's memory.
func (v *View) boots(memory *savedmemory.Memory) string {
	switch {
	case !memory.Whole():
		return "its memory was not saved to the end"
	case lapsed(v.Snapshot):
		return "it went on before all of its volumes were snapshotted, and they do not fit its memory"
	case v.VM == nil:
		return "the restored VM is another one, with an identity of its own"
	}
	return ""
}

// lapsed reports a snapshot whose guest went on before all of its volumes were snapshotted.
func lapsed(snapshot *v1beta1.VirtualMachineSnapshot) bool {
	return slices.ContainsFunc(snapshot.Status.SourceIndications, func(i v1beta1.SourceIndication) bool {
		return i.Indication == v1beta1.VMSnapshotQuiesceTimeoutIndication
	})
}
