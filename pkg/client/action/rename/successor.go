package rename

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/identity"
	"github.com/virtkit/virtkit/pkg/vm/ipaddress"
	"github.com/virtkit/virtkit/pkg/vm/macaddress"
)

// Successor returns the VM that takes the place of another. The guest is the same: what follows from the old name is
// written out. It is stopped, and marked as one that waits for its place.
func Successor(old *v1.VirtualMachine, r Request) (*v1.VirtualMachine, error) {
	vm := &v1.VirtualMachine{
		TypeMeta: metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "VirtualMachine"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: old.Namespace, Name: r.To, Labels: maps.Clone(old.Labels),
			Annotations: maps.Clone(old.Annotations), OwnerReferences: slices.Clone(old.OwnerReferences),
		},
		Spec: *old.Spec.DeepCopy(),
	}
	if vm.Annotations == nil {
		vm.Annotations = map[string]string{}
	}
	for _, own := range []string{identity.RenamedTo, identity.RenamedFrom, identity.RenamingFrom} {
		delete(vm.Annotations, own)
	}
	if err := applied(vm); err != nil {
		return nil, err
	}
	keepRevisions(vm, &old.Status)
	keepGuest(vm.Spec.Template, old.Name, r)
	from := old.Namespace + "/" + old.Name
	if err := errors.Join(macaddress.Move(vm, from), ipaddress.Move(vm, from)); err != nil {
		return nil, err
	}
	renaming := identity.Renaming{Name: old.Name, UID: old.UID}
	if vm.Spec.RunStrategy != nil && *vm.Spec.RunStrategy != v1.RunStrategyHalted {
		renaming.RunStrategy = *vm.Spec.RunStrategy
		halted := v1.RunStrategyHalted
		vm.Spec.RunStrategy = &halted
	}
	data, err := json.Marshal(vm)
	if err != nil {
		return nil, fmt.Errorf("encode VM %s: %w", vm.Name, err)
	}
	sum := sha256.Sum256(append(data, renaming.RunStrategy...))
	renaming.Of = hex.EncodeToString(sum[:8])
	mark, err := renaming.Encode()
	vm.Annotations[identity.RenamingFrom] = mark
	return vm, err
}

// applied changes the name in kubectl's record of the applied manifest to the new one, so that `kubectl apply` goes on
// from there.
func applied(vm *v1.VirtualMachine) error {
	text, ok := vm.Annotations[corev1.LastAppliedConfigAnnotation]
	if !ok {
		return nil
	}
	var object map[string]any
	if !json.Valid([]byte(text)) {
		delete(vm.Annotations, corev1.LastAppliedConfigAnnotation) // kubectl would not read it either
		return nil
	}
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		return fmt.Errorf("read the annotation %s: %w", corev1.LastAppliedConfigAnnotation, err)
	}
	if meta, ok := object["metadata"].(map[string]any); ok {
		meta["name"] = vm.Name
	}
	data, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("encode annotation %s: %w", corev1.LastAppliedConfigAnnotation, err)
	}
	vm.Annotations[corev1.LastAppliedConfigAnnotation] = string(data) + "\n"
	return nil
}

// keepRevisions names the revisions of the instance type and the preference that the VM has: those of today may differ.
func keepRevisions(vm *v1.VirtualMachine, status *v1.VirtualMachineStatus) {
	revision := func(ref *v1.InstancetypeStatusRef, name, revision string) string {
		if revision != "" || ref == nil || ref.Name != name || ref.ControllerRevisionRef == nil {
			return revision
		}
		return ref.ControllerRevisionRef.Name
	}
	if m := vm.Spec.Instancetype; m != nil {
		m.RevisionName = revision(status.InstancetypeRef, m.Name, m.RevisionName)
	}
	if m := vm.Spec.Preference; m != nil {
		m.RevisionName = revision(status.PreferenceRef, m.Name, m.RevisionName)
	}
}

// keepGuest writes out what the guest has from the VM's name: its firmware UUID, its host name, and the name by
// which it knows itself. The addresses of its interfaces are moved by macaddress.Move.
func keepGuest(template *v1.VirtualMachineInstanceTemplateSpec, old string, r Request) {
	spec := &template.Spec
	if spec.Domain.Firmware == nil {
		spec.Domain.Firmware = &v1.Firmware{}
	}
	if spec.Domain.Firmware.UUID == "" {
		spec.Domain.Firmware.UUID = identity.UUID(old)
	}
	if r.Hostname != "" {
		spec.Hostname = r.Hostname
	}
	spec.Hostname = names.Host(spec.Hostname, old)
	known := identity.Name(&v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Name: old, Annotations: template.ObjectMeta.Annotations,
	}})
	if known == r.To {
		delete(template.ObjectMeta.Annotations, identity.KnownAs)
		return
	}
	metav1.SetMetaDataAnnotation(&template.ObjectMeta, identity.KnownAs, known)
}
