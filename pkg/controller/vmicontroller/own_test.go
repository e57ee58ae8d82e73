package vmicontroller

import (
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// launcherOfVMI gives a pod all that a launcher says of itself, which anybody can write.
func launcherOfVMI(pod *corev1.Pod) {
	pod.Labels = map[string]string{v1.AppLabel: names.VirtLauncher}
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance", Name: "demo", Controller: new(true),
		UID: "8f2c5d0e-0a5b-4a57-9f0b-6f7d8c1e2a3b", // as parseVMI has it
	}}
}

// A pod is the VMI's if its UID says so, whatever it says of itself.
func TestOwn(t *testing.T) {
	launcher := func(change ...func(*corev1.Pod)) *corev1.Pod {
		return testPod(append([]func(*corev1.Pod){running, launcherOfVMI}, change...)...)
	}
	created := func(purpose string) map[types.UID]string { return map[types.UID]string{"pod-uid": purpose} }
	recorded := func(node string) func(*v1.VirtualMachineInstance) {
		return func(vmi *v1.VirtualMachineInstance) { vmi.Status.ActivePods = map[types.UID]string{"pod-uid": node} }
	}
	unrecorded := func(vmi *v1.VirtualMachineInstance) { vmi.Status.ActivePods = nil }
	another := func(vmi *v1.VirtualMachineInstance) { vmi.Status.ActivePods = map[types.UID]string{"other": "node01"} }
	for name, c := range map[string]struct {
		view       View
		own, stray bool
	}{
		"a tenant's, with our name, label and owner": {
			View{VMI: testVMI(t, v1.Pending), Pods: []*corev1.Pod{launcher()}}, false, true,
		},
		"a tenant's, beside the guest's": {
			View{VMI: testVMI(t, v1.Running, another), Pods: []*corev1.Pod{launcher()}}, false, true,
		},
		"another object's, with our name": {
			View{VMI: testVMI(t, v1.Pending), Pods: []*corev1.Pod{testPod(running)}}, false, false,
		},
		"created a moment ago": {
			View{VMI: testVMI(t, v1.Pending), Pods: []*corev1.Pod{launcher()}, Created: created(purposeLauncher)},
			true,
			false,
		},
		"created, and another was recorded": {
			View{
				VMI: testVMI(t, v1.Scheduled, another), Pods: []*corev1.Pod{launcher()},
				Created: created(purposeLauncher),
			},
			false, true,
		},
		"created for a migration": {
			View{VMI: testVMI(t, v1.Running, another), Pods: []*corev1.Pod{launcher()}, Created: created("migration")},
			true, false,
		},
		"recorded": {
			View{VMI: testVMI(t, v1.Running, recorded("node01")), Pods: []*corev1.Pod{launcher()}}, true, false,
		},
		"recorded, the guest has left": {
			View{VMI: testVMI(t, v1.Running, recorded("")), Pods: []*corev1.Pod{launcher()}}, true, false,
		},
		"while a pod is created": {
			View{VMI: testVMI(t, v1.Pending), Pods: []*corev1.Pod{launcher()}, Creating: true}, false, false,
		},
		"recorded since the cache saw the VMI": {
			View{
				VMI: testVMI(t, v1.Pending), Pods: []*corev1.Pod{launcher()},
				Recorded: map[types.UID]string{"pod-uid": ""},
			},
			false, false,
		},
		"another was recorded since": {
			View{
				VMI: testVMI(t, v1.Pending), Pods: []*corev1.Pod{launcher()},
				Recorded: map[types.UID]string{"other": ""},
			},
			false, true,
		},
		"stray, and has ended": {
			View{VMI: testVMI(t, v1.Pending), Pods: []*corev1.Pod{launcher(ended(corev1.PodFailed, ""))}}, false, false,
		},
		"stray, and goes": {View{VMI: testVMI(t, v1.Pending), Pods: []*corev1.Pod{launcher(going)}}, false, false},
		"not recorded by the virt-controller that made it": {
			View{VMI: testVMI(t, v1.Scheduling, unrecorded), Pods: []*corev1.Pod{launcher()}}, false, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.view.Now = now
			if got := len(own(c.view)) == 1; got != c.own {
				t.Errorf("own: %t, want %t", got, c.own)
			}
			step := Next(c.view)
			if got := len(step.Strays) == 1; got != c.stray {
				t.Errorf("stray: %t, want %t", got, c.stray)
			}
			if !c.own && step.NodeLabel == "node01" && !Scheduled(c.view.VMI) {
				t.Error("the guest is scheduled to it")
			}
			if !c.own && c.view.VMI.Status.Phase != v1.Running && !c.view.Creating && step.Status.Phase == v1.Failed {
				t.Errorf("the VMI fails: %+v", step.Status)
			}
		})
	}
}

// Whoever may make pods could keep a VMI from ending, by a pod with a finalizer that said it was the VMI's.
func TestForeignPodDoesNotHoldVMI(t *testing.T) {
	foreign := testPod(running, launcherOfVMI, going, func(pod *corev1.Pod) {
		pod.Finalizers = []string{"example.com/never"}
	})
	if step := Next(View{
		VMI:  testVMI(t, v1.Running, deleted, func(vmi *v1.VirtualMachineInstance) { vmi.Status.ActivePods = nil }),
		Pods: []*corev1.Pod{foreign}, Now: now,
	}); !step.RemoveFinalizer {
		t.Errorf("the finalizer stays: %+v", step)
	}
	if step := Next(View{
		VMI: testVMI(t, v1.Running, deleted), Pods: []*corev1.Pod{foreign}, Now: now,
	}); step.RemoveFinalizer {
		t.Error("the finalizer goes before the VMI's own pod")
	}
}

// A pod that the guest has left is recorded until it has ended.
func TestPrune(t *testing.T) {
	guests := testPod(running, func(pod *corev1.Pod) { pod.Name, pod.UID = "b", "b" })
	left := func(change ...func(*corev1.Pod)) *corev1.Pod {
		return testPod(append([]func(*corev1.Pod){running, launcherOfVMI, old, func(pod *corev1.Pod) {
			pod.Name, pod.UID, pod.Spec.NodeName = "a", "a", "node02"
		}}, change...)...)
	}
	for name, c := range map[string]struct {
		pods []*corev1.Pod
		want map[types.UID]string
	}{
		"it ends":   {[]*corev1.Pod{guests, left()}, map[types.UID]string{"a": "", "b": "node01"}},
		"has ended": {[]*corev1.Pod{guests, left(ended(corev1.PodSucceeded, ""))}, map[types.UID]string{"b": "node01"}},
		"is gone":   {[]*corev1.Pod{guests}, map[types.UID]string{"b": "node01"}},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := testVMI(t, v1.Running, func(vmi *v1.VirtualMachineInstance) {
				vmi.Status.ActivePods = map[types.UID]string{"a": "", "b": "node01"}
				vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{
					SourcePod: "a", TargetPod: "b", Completed: true, EndTimestamp: new(at(time.Second)),
				}
			})
			got := Next(View{VMI: vmi, Pods: c.pods, Now: now}).Status.ActivePods
			if !maps.Equal(got, c.want) {
				t.Errorf("activePods %v, want %v", got, c.want)
			}
			if len(vmi.Status.ActivePods) != 2 {
				t.Errorf("Next changed its input: %v", vmi.Status.ActivePods)
			}
		})
	}
}

// A guest that stands still until the other pod of its migration has ended goes on when that pod's node is fenced,
// which virt-controller alone can tell.
func TestPruneFenced(t *testing.T) {
	waits := func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.Conditions = append(vmi.Status.Conditions, v1.VirtualMachineInstanceCondition{
			Type: v1.VirtualMachineInstancePaused, Status: corev1.ConditionTrue, Reason: names.ReasonPausedToMove,
		})
	}
	records := func(node string) func(*v1.VirtualMachineInstance) {
		return func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.ActivePods = map[types.UID]string{"pod-uid": "node01", "other": node}
		}
	}
	other := func(change ...func(*corev1.Pod)) *corev1.Pod {
		pod := testPod(append([]func(*corev1.Pod){running, launcherOfVMI}, change...)...)
		pod.Name, pod.UID, pod.Spec.NodeName = "other", "other", "node02"
		return pod
	}
	waiting := testVMI(t, v1.Running, records("node02"), waits)
	for name, c := range map[string]struct {
		vmi   *v1.VirtualMachineInstance
		other *corev1.Pod
		held  bool
		want  bool
	}{
		"another pod of a guest that runs":      {vmi: testVMI(t, v1.Running, records("node02")), want: true},
		"the guest waits for it":                {vmi: waiting, other: other(), want: true},
		"the guest waits, its end is not known": {vmi: waiting, held: true, want: true},
		"the guest waits, its node was fenced":  {vmi: waiting},
		"the guest waits, and it has ended":     {vmi: waiting, other: other(ended(corev1.PodFailed, "")), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			view := View{VMI: c.vmi, Pods: []*corev1.Pod{testPod(running, launcherOfVMI)}, Now: now}
			if c.other != nil {
				view.Pods = append(view.Pods, c.other)
			}
			if c.held {
				view.Holders = map[types.UID]string{"other": "node02"}
			}
			before := maps.Clone(c.vmi.Status.ActivePods)
			active := Next(view).Status.ActivePods
			if _, got := active["other"]; got != c.want {
				t.Errorf("activePods %v, want the other pod there: %t", active, c.want)
			}
			if _, there := active["pod-uid"]; !there || !maps.Equal(before, c.vmi.Status.ActivePods) {
				t.Errorf("activePods %v, and of the VMI looked at %v", active, c.vmi.Status.ActivePods)
			}
		})
	}
}
