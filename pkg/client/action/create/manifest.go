package create

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"
)

// Manifest returns vm as a user would write it: without status and null creation timestamps.
func Manifest(vm *v1.VirtualMachine) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(vm)
	if err != nil {
		return nil, fmt.Errorf("write the manifest of %s: %w", vm.Name, err)
	}
	unstructured.RemoveNestedField(content, "status")
	for _, path := range [][]string{{"metadata"}, {"spec", "template", "metadata"}} {
		timestamp := append(slices.Clone(path), "creationTimestamp")
		if value, found, err := unstructured.NestedFieldNoCopy(content, timestamp...); err == nil && found &&
			value == nil {
			unstructured.RemoveNestedField(content, timestamp...)
		}
		if meta, found, err := unstructured.NestedMap(content, path...); err == nil && found && len(meta) == 0 {
			unstructured.RemoveNestedField(content, path...)
		}
	}
	if templates, found, err := unstructured.NestedSlice(content, "spec", "dataVolumeTemplates"); err == nil && found {
		for _, template := range templates {
			if object, ok := template.(map[string]any); ok {
				unstructured.RemoveNestedField(object, "metadata", "creationTimestamp")
			}
		}
		if err := unstructured.SetNestedSlice(content, templates, "spec", "dataVolumeTemplates"); err != nil {
			return nil, fmt.Errorf("write the manifest of %s: %w", vm.Name, err)
		}
	}
	return &unstructured.Unstructured{Object: content}, nil
}
