package vmicontroller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

// leaseholder is a VMI that runs in a pod on node01.
func leaseholder(t *testing.T, phase v1.VirtualMachineInstancePhase, change ...func(*v1.VirtualMachineInstance),
) *v1.VirtualMachineInstance {
	t.Helper()
	vmi := testVMI(t, phase, change...)
	vmi.Namespace = "ns"
	vmi.Status.ActivePods = map[types.UID]string{"pod-uid": "node01"}
	return vmi
}

// ofVMI makes a pod a VMI's.
func ofVMI(vmi *v1.VirtualMachineInstance) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Namespace = vmi.Namespace
		pod.OwnerReferences = []metav1.OwnerReference{
			*metav1.NewControllerRef(vmi, v1.VirtualMachineInstanceGroupVersionKind),
		}
	}
}

func leaseNode(ready corev1.ConditionStatus, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node01"},
		Spec:       corev1.NodeSpec{Taints: taints},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
	}
}

// leaseReconciler is one over a cluster that has the objects.
func leaseReconciler(t *testing.T, objects ...client.Object) *Reconciler {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return &Reconciler{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&v1.VirtualMachineInstance{}, VMIsByClaim, func(o client.Object) []string {
			return claimNames(o.(*v1.VirtualMachineInstance))
		}).
		WithIndex(&corev1.Pod{}, PodsByVMI, func(o client.Object) []string {
			return []string{string(metav1.GetControllerOfNoCopy(o).UID)}
		}).
		Build()}
}

// A pod that was removed holds its VMI's claims until its kubelet or its node's virt-handler has said that it ended, or
// the node is fenced.
func TestRemovedPodHoldsItsClaims(t *testing.T) {
	fence := corev1.Taint{Key: corev1.TaintNodeOutOfService}
	for name, c := range map[string]struct {
		vmi   *v1.VirtualMachineInstance
		pod   *corev1.Pod
		ended bool
		node  *corev1.Node
		want  bool
	}{
		"force-deleted": {vmi: leaseholder(t, v1.Running), node: leaseNode(corev1.ConditionTrue), want: true},
		"force-deleted on a silent node": {
			vmi: leaseholder(t, v1.Unknown), node: leaseNode(corev1.ConditionUnknown), want: true,
		},
		"force-deleted with its VMI": {
			vmi: leaseholder(t, v1.Running, deleted), node: leaseNode(corev1.ConditionTrue), want: true,
		},
		"tainted though its kubelet answers": {
			vmi: leaseholder(t, v1.Running), node: leaseNode(corev1.ConditionTrue, fence), want: true,
		},
		"fenced": {
			vmi: leaseholder(t, v1.Unknown), node: leaseNode(corev1.ConditionUnknown, fence),
		},
		"its node was deleted":                {vmi: leaseholder(t, v1.Unknown)},
		"virt-handler has said that it ended": {vmi: leaseholder(t, v1.Failed), node: leaseNode(corev1.ConditionTrue)},
		"its kubelet has said that it ended": {
			vmi: leaseholder(t, v1.Running), ended: true, node: leaseNode(corev1.ConditionTrue),
		},
		"the pod is there": {
			vmi: leaseholder(t, v1.Running), pod: testPod(running), node: leaseNode(corev1.ConditionTrue),
		},
		"its guest has not begun": {vmi: leaseholder(t, v1.Scheduling), node: leaseNode(corev1.ConditionTrue)},
		"a stranger ended that says it was it": {
			vmi: leaseholder(t, v1.Running), pod: testPod(ended(corev1.PodFailed, ""), stranger),
			node: leaseNode(corev1.ConditionTrue), want: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []client.Object
			if c.node != nil {
				objects = append(objects, c.node)
			}
			r := leaseReconciler(t, objects...)
			if c.ended {
				r.endings.noting().Delete(event.DeleteEvent{Object: testPod(ended(corev1.PodFailed, ""), ofVMI(c.vmi))})
			}
			view := View{VMI: c.vmi, DeadSince: now.Add(-2 * handlerGrace), Now: now}
			if c.pod != nil {
				ofVMI(c.vmi)(c.pod)
				r.endings.noting().Create(event.CreateEvent{Object: c.pod})
				view.Pods = append(view.Pods, c.pod)
			}
			var err error
			if view.Holders, err = r.holders(t.Context(), c.vmi, view.Pods); err != nil ||
				(len(view.Holders) > 0) != c.want {
				t.Fatalf("held by %v, %v", view.Holders, err)
			}
			step := Next(view)
			if !c.want {
				return
			}
			if step.Status.Phase != c.vmi.Status.Phase || step.RemoveFinalizer ||
				step.RequeueAfter != holdersAgain && c.pod == nil {
				t.Errorf("it is let go: %+v", step)
			}
			if len(view.Pods) > 0 {
				return
			}
			ready := conditions.Find(step.Status.Conditions, v1.VirtualMachineInstanceReady)
			if ready.Reason != ReasonEndNotConfirmed || !strings.Contains(ready.Message, "node01") ||
				len(step.Events) != 1 {
				t.Errorf("it says %+v, %+v", ready, step.Events)
			}
			view.VMI.Status = step.Status
			if again := Next(view); len(again.Events) != 0 {
				t.Errorf("it says so again: %+v", again.Events)
			}
		})
	}
}

// Another VMI does not start on a claim that a removed pod still holds, and does as soon as its end is known.
func TestClaimHeldByAnother(t *testing.T) {
	disk := func(vmi *v1.VirtualMachineInstance) {
		vmi.Spec.Volumes = []v1.Volume{
			{Name: "disk", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
				PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"},
			}}},
		}
	}
	before := leaseholder(t, v1.Running, disk)
	before.Name, before.UID = "before", "before"
	second := testVMI(t, v1.Pending, disk)
	second.Namespace = "ns"
	r := leaseReconciler(t, before, second, leaseNode(corev1.ConditionTrue))
	look := func() Step {
		t.Helper()
		view := View{VMI: second, Now: now, Claims: map[string]*corev1.PersistentVolumeClaim{"disk": {}}}
		if err := r.lookAtLeases(t.Context(), &view); err != nil {
			t.Fatal(err)
		}
		return Next(view)
	}
	step := look()
	reason := conditions.Find(step.Status.Conditions, v1.VirtualMachineInstanceSynchronized)
	if step.CreatePod || step.RequeueAfter != holdersAgain || reason.Reason != names.ReasonClaimHeld ||
		!strings.Contains(reason.Message, "VirtualMachineInstance before") {
		t.Errorf("a second guest on the disk: %+v", step)
	}
	before.Status.Phase = v1.Failed
	if err := r.Client.Update(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	if step := look(); !step.CreatePod {
		t.Errorf("the first has ended: %+v", step)
	}
}
