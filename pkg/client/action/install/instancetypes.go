package install

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/virtkit/virtkit/pkg/vm/instancetype/common"
)

// Instancetypes returns the common instance types and preferences. virt-api admits them, so they can be applied once it
// is ready.
func Instancetypes() ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	add := func(object any, name string) error {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		o := &unstructured.Unstructured{Object: content}
		unstructured.RemoveNestedField(o.Object, "metadata", "creationTimestamp")
		labels := o.GetLabels()
		labels[partOfLabel] = partOf
		o.SetLabels(labels)
		all = append(all, o)
		return nil
	}
	for _, size := range common.Instancetypes() {
		if err := add(size, size.Name); err != nil {
			return nil, err
		}
	}
	for _, preference := range common.Preferences() {
		if err := add(preference, preference.Name); err != nil {
			return nil, err
		}
	}
	return all, nil
}
