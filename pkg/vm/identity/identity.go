// Package identity defines the name by which a guest knows itself, and marks a VirtualMachine that is renamed.
// Kubernetes cannot rename an object: `virtctl rename` makes the VM anew under the new name and then removes the old
// one. What a guest has by its name on its disks stays: cloud-init's instance ID, by which it knows a first boot, and
// the file of its EFI variables. The package is pure; virtctl, virt-controller and virt-launcher ask it.
package identity

import (
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

const (
	// KnownAs is on a VM's template, and so on its VMI: the name by which the guest knows itself, where that is
	// not the VM's.
	KnownAs = "virtkit.io/known-as"
	// RenamedTo is on a VM that is being renamed: its new name. It keeps two renames of one VM apart.
	RenamedTo = "virtkit.io/renamed-to"
	// RenamedFrom is on a VM that was renamed: the name before.
	RenamedFrom = "virtkit.io/renamed-from"
	// RenamingFrom is on a VM that takes the place of another and does not have it yet; a Renaming as JSON.
	// virt-controller does nothing for such a VM.
	RenamingFrom = "virtkit.io/renaming-from"
)

// Name returns the name by which a guest knows itself: that of its VMI, or the one before its VM was renamed. A KnownAs
// that is no name counts as none, since files are named by it.
func Name(vmi *v1.VirtualMachineInstance) string {
	if known := vmi.Annotations[KnownAs]; len(validation.IsDNS1123Subdomain(known)) == 0 {
		return known
	}
	return vmi.Name
}

// Host returns the host name of a VMI's guest and of its pod.
func Host(vmi *v1.VirtualMachineInstance) string { return names.Host(vmi.Spec.Hostname, vmi.Name) }

// firmwareNamespace is KubeVirt's: a VM keeps its UUID, and with it software licences, when it moves from there.
var firmwareNamespace = uuid.MustParse("6a1a24a1-4061-4607-8bf4-a3963d0c5895")

// UUID returns the firmware UUID of a VM that does not say one, made of its name.
func UUID(vm string) types.UID {
	return types.UID(uuid.NewSHA1(firmwareNamespace, []byte(vm)).String())
}

// Renaming is the state of a rename, in an annotation of the new VM until the rename is done.
type Renaming struct {
	// Name and UID identify the VM whose place it takes.
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// Of shows whether that VM has changed since: a hash of what was made of it.
	Of string `json:"of"`
	// RunStrategy is the run strategy after the rename; "" leaves Halted.
	RunStrategy v1.VirtualMachineRunStrategy `json:"runStrategy,omitempty"`
}

// RenamingOf reads the mark of a VM; nil when it takes nobody's place. A mark that cannot be read is an error, and
// a mark.
func RenamingOf(vm *v1.VirtualMachine) (*Renaming, error) {
	text, marked := vm.Annotations[RenamingFrom]
	if !marked {
		return nil, nil
	}
	out := &Renaming{}
	if err := json.Unmarshal([]byte(text), out); err != nil {
		return out, fmt.Errorf("annotation %s of VM %s/%s is not what `virtctl rename` writes: %w", RenamingFrom,
			vm.Namespace, vm.Name, err)
	}
	return out, nil
}

// Encode returns the value of RenamingFrom.
func (r Renaming) Encode() (string, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode annotation %s: %w", RenamingFrom, err)
	}
	return string(data), nil
}
