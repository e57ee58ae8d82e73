package claims

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

func TestUsers(t *testing.T) {
	volumes := func(claims ...string) (out []v1.Volume) {
		for _, claim := range claims {
			out = append(out, v1.Volume{VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: claim}}})
		}
		return append(out, v1.Volume{VolumeSource: v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{}}})
	}
	vm := func(name string, claims ...string) *v1.VirtualMachine {
		out := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: name}}
		out.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
		out.Spec.Template.Spec.Volumes = volumes(claims...)
		return out
	}
	owned := func(kind, name, uid string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: kind, Name: name, UID: types.UID(uid), Controller: new(true)}}
	}
	vmi := func(name string, owners []metav1.OwnerReference, claims ...string) *v1.VirtualMachineInstance {
		return &v1.VirtualMachineInstance{
			ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners},
			Spec:       v1.VirtualMachineInstanceSpec{Volumes: volumes(claims...)},
		}
	}
	pod := func(name, claim string, owners []metav1.OwnerReference) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), OwnerReferences: owners},
			Spec: corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}}}},
		}
	}
	attachment := pod("hp-a", "late", owned("Pod", "launcher-a", "launcher-a"))
	attachment.Labels = map[string]string{v1.AppLabel: "hotplug-disk"}
	ended := pod("ended", "free", nil)
	ended.Status.Phase = corev1.PodSucceeded

	users := Users{}
	for _, o := range []*v1.VirtualMachine{vm("a", "a-root", "shared"), vm("b", "shared"), {}} {
		users.AddVM(o)
	}
	users.AddVMI(vmi("a", owned("VirtualMachine", "a", ""), "a-root", "shared", "plugged"))
	users.AddVMI(vmi("alone", nil, "shared"))
	users.AddPods([]corev1.Pod{
		attachment, ended, pod("launcher-a", "a-root", owned("VirtualMachineInstance", "a", "")),
		pod("launcher-alone", "shared", owned("VirtualMachineInstance", "alone", "")),
		pod("backup", "a-root", nil), pod("guestfs", "shared", owned("Job", "b", "")),
	})
	for _, tc := range []struct {
		claim, vm, want string
		keeps           bool
	}{
		{"a-root", "a", "[pod/backup]", false},
		{"a-root", "b", "[a pod/backup]", true},
		{"a-root", "", "[a pod/backup]", true},
		{"shared", "a", "[b vmi/alone pod/guestfs]", true},
		{"plugged", "a", "[]", false},
		{"plugged", "b", "[a]", true},
		{"late", "a", "[]", false},
		{"late", "b", "[pod/hp-a]", false},
		{"free", "b", "[]", false},
	} {
		others := users.Others(tc.claim, tc.vm)
		if got := fmt.Sprint(others); got != tc.want || Keeps(others) != tc.keeps {
			t.Errorf("%s without %q: %s, keeps %t", tc.claim, tc.vm, got, Keeps(others))
		}
	}
}
