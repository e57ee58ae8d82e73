// Package savedmemory defines how the memory of a guest gets into a snapshot, and out of it again. It is pure: names
// and annotations in, names and annotations out.
//
//	VirtualMachineSnapshot with IncludeAnnotation
//	  └─► virt-controller: a claim of the snapshot's, plugged into the VMI as a volume that is no disk (Volume)
//	        └─► virt-handler: mounted in the launcher's pod
//	              └─► launcher: the guest is paused, and its memory written there; then its disks are snapshotted
//
//	VirtualMachineRestore in place
//	  └─► virt-controller: ResumeAnnotation on the VM, then on its next VMI, whose pod has the claim
//	        └─► launcher: the guest goes on from there instead of booting, once
package savedmemory

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/vm/reserved"
)

const (
	// IncludeAnnotation is on a VirtualMachineSnapshot that is to have the guest's memory: "true".
	IncludeAnnotation = "virtkit.io/include-memory"
	// ResumeAnnotation is on a VM from a restore until its guest has been resumed, and on the VMI that does so: a
	// Resume as JSON. virt-controller alone writes it.
	ResumeAnnotation = reserved.ResumeMemory
)

// volumePrefix begins the names of volumes, and of claims, that take a guest's memory for a snapshot.
const volumePrefix = "vmsnapshot-memory-"

// Volume returns the name of the volume, and of the claim, that takes the guest's memory for a
// VirtualMachineSnapshotContent of that UID.
func Volume(content types.UID) string { return volumePrefix + string(content) }

// IsVolume reports whether a volume has one of Volume's names.
func IsVolume(name string) bool { return strings.HasPrefix(name, volumePrefix) }

// File is the memory's file in its claim.
const File = "memory"

// Saved is the state of a save of a guest's memory: virt-handler's and virt-api's answer to a freeze with it.
type Saved struct {
	// Began is from when on the guest has stood still. Another time is another save.
	Began time.Time `json:"began"`
	// Ended is nil as long as it is under way.
	Ended *time.Time `json:"ended,omitempty"`
	// Size is in bytes.
	Size    int64  `json:"size,omitempty"`
	Failure string `json:"failure,omitempty"`
}

// MemoryAnnotation is on a VirtualMachineSnapshotContent whose guest's memory is, or is being, saved: a Memory as JSON.
const MemoryAnnotation = "virtkit.io/memory"

// Memory is the record of the guest's memory in a content.
type Memory struct {
	Claim string `json:"claim"`
	Saved
	// Guest is the VMI whose memory it is.
	Guest types.UID `json:"guest,omitempty"`
	// MACs are the addresses of the guest's interfaces, by name.
	MACs map[string]string `json:"macs,omitempty"`
	// Stood is for how long the guest stood still; zero as long as it does.
	Stood metav1.Duration `json:"stood"`
}

// MemoryOf reads MemoryAnnotation; nil when there is none, or when nobody can read it.
func MemoryOf(annotations map[string]string) *Memory {
	out := &Memory{}
	if json.Unmarshal([]byte(annotations[MemoryAnnotation]), out) != nil {
		return nil
	}
	return out
}

// Whole reports memory from which a guest can be resumed.
func (m *Memory) Whole() bool { return m != nil && m.Ended != nil && m.Failure == "" }

// Failed reports whether the memory of a VMI could not be saved. Nothing is known of one that was started after it.
func (m *Memory) Failed(guest types.UID) bool {
	return m != nil && m.Failure != "" && (m.Guest == "" || m.Guest == guest)
}

// Encode returns the value of MemoryAnnotation.
func (m *Memory) Encode() (string, error) { return encode(MemoryAnnotation, m) }

// Resume names the memory from which the guest of a restored VM goes on.
type Resume struct {
	// Claim has the memory.
	Claim string `json:"claim"`
	// Restore is the VirtualMachineRestore that put the disks back to the memory's moment. For each the guest is
	// resumed once.
	Restore types.UID `json:"restore"`
	// Disks are the claims that the restore made, by volume: they alone fit the memory.
	Disks map[string]types.UID `json:"disks,omitempty"`
	// MACs are the addresses that the guest's interfaces had, by name, where the VM's template gives none.
	MACs map[string]string `json:"macs,omitempty"`
}

// Token returns the file in the memory's claim that says which VMI has been resumed after a restore.
func (r *Resume) Token() string { return "resumed-" + string(r.Restore) }

// ResumeOf reads ResumeAnnotation; nil when there is none.
func ResumeOf(annotations map[string]string) (*Resume, error) {
	text, ok := annotations[ResumeAnnotation]
	if !ok {
		return nil, nil
	}
	out := &Resume{}
	err := json.Unmarshal([]byte(text), out)
	if err == nil && (out.Claim == "" || out.Restore == "" || strings.ContainsRune(string(out.Restore), '/')) {
		err = fmt.Errorf("it has no claim or no restore: %s", text)
	}
	if err != nil {
		return nil, fmt.Errorf("annotation %s is not what virt-controller writes; remove it, and the guest boots: %w",
			ResumeAnnotation, err)
	}
	return out, nil
}

// Pending returns the memory from which the next guest of a VM goes on; nil for none, and for one that nobody can read.
func Pending(vm metav1.Object) *Resume {
	mark, err := ResumeOf(vm.GetAnnotations())
	if err != nil {
		return nil // The launcher says what is wrong with it.
	}
	return mark
}

// Forget returns the command that has a VM boot at its next start.
func Forget(namespace, name string) string {
	return fmt.Sprintf("kubectl annotate vm %s %s- -n %s", name, ResumeAnnotation, namespace)
}

// Encode returns the value of ResumeAnnotation.
func (r *Resume) Encode() (string, error) { return encode(ResumeAnnotation, r) }

func encode(annotation string, value any) (string, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("encode annotation %s: %w", annotation, err)
	}
	return string(data), nil
}
