package restorecontroller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/snapshots"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// The restored state becomes the VM's also when only its preference asks for a TPM: else the VM would boot its restored
// disks with the TPM from before.
func TestStateOfAPreference(t *testing.T) {
	v := viewOf(t)
	v.VM = v.VM.DeepCopy()
	v.VM.Spec.Template.Spec.Domain.Devices.TPM = nil
	v.VM.Spec.Template.Spec.Domain.Firmware = nil
	v.VM.Spec.Preference = &v1.PreferenceMatcher{Name: "windows"}
	if vmstate.Needed(&v.VM.Spec.Template.Spec) {
		t.Fatal("the template asks for a state itself")
	}
	claim := func(name, label string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name),
			Labels: map[string]string{vmstate.Prefix: label},
		}}
	}
	old, restored := claim("old", v.VM.Name), claim("restored", "")
	v.States = []*corev1.PersistentVolumeClaim{old}
	v.Made = map[string]*corev1.PersistentVolumeClaim{"restored": restored}
	v.Restore.Status.Restores = []v1beta1.VolumeRestore{
		{VolumeName: snapshots.StateVolume(v.VM.Name), PersistentVolumeClaimName: "restored"},
	}
	var step Step
	v.moveState(&step)
	labels := map[string]string{}
	for _, change := range step.ChangeClaims {
		labels[change.After.Name] = change.After.Labels[vmstate.Prefix]
	}
	if label, ok := labels["old"]; !ok || label != "" || labels["restored"] != v.VM.Name {
		t.Errorf("labels of the state's claims: %v", labels)
	}
}
