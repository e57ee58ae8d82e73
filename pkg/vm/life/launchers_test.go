package life

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// Whose a pod is says its UID in the status, whatever it says of itself.
func TestLaunchers(t *testing.T) {
	pod := func(uid types.UID, node string, change ...func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: uid, Labels: map[string]string{
				v1.AppLabel: "virt-launcher", v1.CreatedByLabel: "vmi",
			}},
			Spec:   corev1.PodSpec{NodeName: node},
			Status: corev1.PodStatus{Phase: corev1.PodRunning},
		}
		for _, c := range change {
			c(p)
		}
		return p
	}
	deleted := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }
	ended := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	vmi := &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{UID: "vmi"},
		Status: v1.VirtualMachineInstanceStatus{
			NodeName:   "node01",
			ActivePods: map[types.UID]string{"guest's": "node01", "target": "node02", "new": "", "left": ""},
		},
	}
	for name, test := range map[string]struct {
		pod                           *corev1.Pod
		recorded, has, guestIn, stays bool
	}{
		"has it":                          {pod("guest's", "node01"), true, true, true, true},
		"is being deleted":                {pod("guest's", "node01", deleted), true, true, true, false},
		"has ended":                       {pod("guest's", "node01", ended), true, true, true, false},
		"is elsewhere than it was":        {pod: pod("guest's", "node03"), recorded: true},
		"may get it":                      {pod("target", "node02"), true, true, false, false},
		"not recorded":                    {pod: pod("theirs", "node01")},
		"recorded, but not with a node":   {pod: pod("new", "node01"), recorded: true},
		"has no node":                     {pod: pod("new", ""), recorded: true},
		"the guest has left, on its node": {pod: pod("left", "node01"), recorded: true},
	} {
		if got := Recorded(vmi, test.pod); got != test.recorded {
			t.Errorf("%s: recorded %v", name, got)
		}
		if got := HasGuest(vmi, test.pod); got != test.has {
			t.Errorf("%s: has the guest, or may get it: %v", name, got)
		}
		if got := GuestIn(vmi, test.pod); got != test.guestIn {
			t.Errorf("%s: the guest is in it: %v", name, got)
		}
		others := []*corev1.Pod{pod("target", "node02"), test.pod, pod("left", "node03")}
		got := GuestPod(vmi, others)
		if (got == test.pod) != test.stays || !test.stays && got != nil {
			t.Errorf("%s: %v", name, got)
		}
	}
	if GuestPod(vmi, nil) != nil {
		t.Error("no pod has it")
	}
	if Recorded(&v1.VirtualMachineInstance{}, pod("", "")) {
		t.Error("a VMI without pods has one")
	}
}
