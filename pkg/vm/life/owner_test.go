package life

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestInstanceOf(t *testing.T) {
	reference := func(kind string, controller *bool) metav1.OwnerReference {
		return metav1.OwnerReference{Kind: kind, Name: "demo", UID: "demo-uid", Controller: controller}
	}
	for name, test := range map[string]struct {
		owners []metav1.OwnerReference
		want   bool
	}{
		"nobody's":       {},
		"a VMI's":        {[]metav1.OwnerReference{reference("VirtualMachineInstance", new(true))}, true},
		"a VM's":         {[]metav1.OwnerReference{reference("VirtualMachine", new(true))}, false},
		"only owned":     {[]metav1.OwnerReference{reference("VirtualMachineInstance", nil)}, false},
		"not controlled": {[]metav1.OwnerReference{reference("VirtualMachineInstance", new(false))}, false},
		"among others": {[]metav1.OwnerReference{
			reference("VirtualMachine", nil), reference("VirtualMachineInstance", new(true)),
		}, true},
	} {
		got := InstanceOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: test.owners}})
		if (got != nil) != test.want || got != nil && (got.Name != "demo" || got.UID != "demo-uid") {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestLauncherOf(t *testing.T) {
	for name, test := range map[string]struct {
		label, owner string
		want         bool
	}{
		"an attachment pod":         {"hotplug-disk", "Pod", true},
		"another pod's pod":         {"", "Pod", false},
		"a launcher":                {"virt-launcher", "VirtualMachineInstance", false},
		"an attachment pod, adrift": {"hotplug-disk", "", false},
		"a VMI's, with the label":   {"hotplug-disk", "VirtualMachineInstance", false},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"kubevirt.io": test.label}}}
		if test.owner != "" {
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: test.owner, Name: "demo", Controller: new(true)}}
		}
		if got := LauncherOf(pod); (got != nil) != test.want || got != nil && got.Name != "demo" {
			t.Errorf("%s: %v", name, got)
		}
	}
}
