package vmicontroller

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// The name is written together with a phase, never alone.
func TestStartRevisionIsNoWriteOfItsOwn(t *testing.T) {
	owned := func(vmi *v1.VirtualMachineInstance) {
		vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: vmi.Name, UID: "1234"}}
		vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)}
		vmi.Annotations = map[string]string{v1.VirtualMachineGenerationAnnotation: "7"}
	}
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"a fresh pod without a node": {testPod(), ""},
		"a pod that waits":           {testPod(old), "revision-start-vm-1234-7"},
		"a pod with a node":          {testPod(bound), "revision-start-vm-1234-7"},
	} {
		view := View{
			VMI: testVMI(t, "", owned), Pods: []*corev1.Pod{tt.pod}, Now: now,
			Created: map[types.UID]string{tt.pod.UID: purposeLauncher},
		}
		status := Next(view).Status
		if got := status.VirtualMachineRevisionName; got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
		if tt.want == "" && !reflect.DeepEqual(status, view.VMI.Status) {
			t.Errorf("%s: %+v is written", name, status)
		}
	}
}
