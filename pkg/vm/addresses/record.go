// Package addresses reads and writes the annotation in which a VM's addresses of one kind are recorded, and compares
// who claims which. Packages macaddress and ipaddress are the kinds. It is pure.
package addresses

import (
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

// Record is what the annotation of a VM or VMI holds, as JSON.
type Record[T any] struct {
	// VM is NAMESPACE/NAME. A copy of a VM has another one, and does not have the addresses of the VM that it was
	// copied from.
	VM string `json:"vm"`
	// Interfaces are the addresses by the interface's name.
	Interfaces map[string]T `json:"interfaces"`
}

// Kind is a kind of addresses.
type Kind[T any] struct {
	// Annotation has the record, which Example shows.
	Annotation, Example string
	// Check returns why an interface cannot have what is recorded.
	Check func(T) error
}

// Encode returns the value of the annotation for a VM.
func (k Kind[T]) Encode(namespace, name string, interfaces map[string]T) (string, error) {
	data, err := json.Marshal(Record[T]{VM: namespace + "/" + name, Interfaces: interfaces})
	if err != nil {
		return "", fmt.Errorf("encode annotation %s: %w", k.Annotation, err)
	}
	return string(data), nil
}

// Decode reads a value of the annotation. An error says what is wrong with it.
func (k Kind[T]) Decode(text string) (Record[T], error) {
	var out Record[T]
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return Record[T]{}, fmt.Errorf("is not %s: %w", k.Example, err)
	}
	for name, has := range out.Interfaces {
		if err := k.Check(has); err != nil {
			return Record[T]{}, fmt.Errorf("interface %s: %w", name, err)
		}
	}
	return out, nil
}

// Recorded returns what a VM's or VMI's annotation has for it, by the interface's name. A record of another VM, and one
// that cannot be read, which admission refuses, count as none.
func (k Kind[T]) Recorded(object metav1.Object) map[string]T {
	text, ok := object.GetAnnotations()[k.Annotation]
	if !ok {
		return nil
	}
	record, err := k.Decode(text)
	if err != nil || record.VM != object.GetNamespace()+"/"+object.GetName() {
		return nil
	}
	return record.Interfaces
}

// Move gives a VM that takes the place of another the addresses that are recorded in its annotation, which it has from
// that one. from is NAMESPACE/NAME of it, or empty where that is known. A record of another, and one that cannot be
// read, is removed.
func (k Kind[T]) Move(vm *v1.VirtualMachine, from string) error {
	text, ok := vm.Annotations[k.Annotation]
	if !ok {
		return nil
	}
	record, unreadable := k.Decode(text)
	if delete(vm.Annotations, k.Annotation); unreadable != nil || from != "" && record.VM != from {
		return nil //nolint:nilerr // what cannot be read counts as none
	}
	moved, err := k.Encode(vm.Namespace, vm.Name, record.Interfaces)
	if err == nil {
		vm.Annotations[k.Annotation] = moved
	}
	return err
}

// Added returns the claims that are not among those before: an address that stays is nobody's concern. Claims with the
// same key exclude each other.
func Added[C any](claims, before []C, key func(*C) string) (out []C) {
	for i := range claims {
		if !slices.ContainsFunc(before, func(b C) bool { return key(&b) == key(&claims[i]) }) {
			out = append(out, claims[i])
		}
	}
	return out
}
