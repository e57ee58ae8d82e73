package volumemigration

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

// The VM's own word counts, then its template's, then that of the classes of all claims that keep the guest.
func TestOptIn(t *testing.T) {
	on := map[string]string{OptInAnnotation: "true"}
	off := map[string]string{OptInAnnotation: "false"}
	shared := func(vmi *v1.VirtualMachineInstance, i int) {
		claim := vmi.Status.VolumeStatus[i].PersistentVolumeClaimInfo
		claim.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	}
	both := map[string]bool{"a": true, "b": true}
	for name, c := range map[string]struct {
		vm, template map[string]string
		change       func(*v1.VirtualMachineInstance)
		byClass      map[string]bool
		want         string
	}{
		"nobody says":       {},
		"the VM":            {vm: on, want: "true"},
		"its template":      {template: on, want: "true"},
		"the VM says no":    {vm: off, template: on, byClass: both, want: "false"},
		"the template does": {template: off, byClass: both, want: "false"},
		"all classes":       {byClass: both, want: "true"},
		"one of two":        {byClass: map[string]bool{"a": true, "b": false}},
		"one is not known":  {byClass: map[string]bool{"a": true}},
		"the other is shared": {
			change:  func(vmi *v1.VirtualMachineInstance) { shared(vmi, 1) },
			byClass: map[string]bool{"a": true}, want: "true",
		},
		"all are shared": {
			change: func(vmi *v1.VirtualMachineInstance) { shared(vmi, 0); shared(vmi, 1) }, byClass: both,
		},
		"while they are copied": {
			change: func(vmi *v1.VirtualMachineInstance) {
				vmi.Spec.Volumes = template(map[string]string{"one": "c", "two": "d"}).Volumes
			},
			byClass: both, want: "true",
		},
		"its claims are not known": {
			change: func(vmi *v1.VirtualMachineInstance) { vmi.Status.VolumeStatus = nil }, byClass: both,
		},
	} {
		vm, vmi := &v1.VirtualMachine{}, ofAVM()
		vm.Annotations = c.vm
		if c.template != nil {
			vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
			vm.Spec.Template.ObjectMeta.Annotations = c.template
		}
		if c.change != nil {
			c.change(vmi)
		}
		if got, given := OptIn(vm, vmi, c.byClass); got != c.want || given != (c.want != "") {
			t.Errorf("%s: %q, %t", name, got, given)
		}
		if _, given := OptIn(vm, nil, c.byClass); given != (c.vm != nil || c.template != nil) {
			t.Errorf("%s: the one to be made has it: %t", name, given)
		}
	}
	if got := Keeping(ofAVM()); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("it is kept by %v", got)
	}
}

func TestClassOptsIn(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "false": false, "": false} {
		class := &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{OptInAnnotation: value}},
		}
		if ClassOptsIn(class) != want {
			t.Errorf("%q: %t", value, !want)
		}
	}
	if ClassOptsIn(nil) || ClassOptsIn(&storagev1.StorageClass{}) {
		t.Error("one that says nothing opts in")
	}
}
