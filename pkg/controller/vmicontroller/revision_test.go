package vmicontroller

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestStartRevision(t *testing.T) {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "vm", UID: "1234"}}
	of := *metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)
	replicated := of
	replicated.Kind = "VirtualMachineInstanceReplicaSet"
	for name, tt := range map[string]struct {
		owners     []metav1.OwnerReference
		generation string
		want       string
	}{
		"of a VM":    {[]metav1.OwnerReference{of}, "7", "revision-start-vm-1234-7"},
		"of its own": {nil, "7", ""},
		"of a set":   {[]metav1.OwnerReference{replicated}, "7", ""},
		"adopted":    {[]metav1.OwnerReference{of}, "", ""},
		"strange":    {[]metav1.OwnerReference{of}, "seven", ""},
	} {
		vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{OwnerReferences: tt.owners}}
		if tt.generation != "" {
			vmi.Annotations = map[string]string{v1.VirtualMachineGenerationAnnotation: tt.generation}
		}
		if got := startRevision(vmi); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
