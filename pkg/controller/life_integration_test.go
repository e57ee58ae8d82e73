//go:build integration

package controller

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func quantity(text string) resource.Quantity { return resource.MustParse(text) }

func TestLife(tt *testing.T) {
	t := newTest(tt)
	vm := t.createVM(v1.RunStrategyAlways)
	vmi, pod := t.run("node01")
	if vmi.Labels["app"] != "web" || !slices.Contains(vmi.Finalizers, v1.VirtualMachineInstanceFinalizer) ||
		!metav1.IsControlledBy(vmi, vm) || vmi.Status.NodeName != "node01" ||
		vmi.Status.ActivePods[pod.UID] != "node01" {
		t.Errorf("VMI %+v", vmi)
	}
	running := t.waitPrintable(v1.VirtualMachineStatusRunning)
	if !running.Status.Created || !running.Status.Ready || running.Status.RunStrategy != v1.RunStrategyAlways {
		t.Errorf("status %+v", running.Status)
	}
	t.quiet()

	t.must(cluster.Client.Delete(t.ctx, vm))
	t.waitPrintable(v1.VirtualMachineStatusTerminating)
	t.endPod(pod)
	t.waitGone(vmi)
	t.waitGone(vm)
	t.quiet()

	// What is refused, in a race with the cache, is no write. Phase Scheduling is written of a pod that waits for its
	// node for a second, which it does here on a machine under load.
	got := writes.in(t.namespace)
	done := slices.DeleteFunc(slices.Clone(got), func(line string) bool {
		return strings.HasSuffix(line, " 409") || strings.HasSuffix(line, " 404") ||
			strings.Contains(line, " phase Scheduling ")
	})
	t.Logf("%d writes, %d left out:\n%s", len(got), len(got)-len(done), strings.Join(got, "\n"))
	// Two creations, two deletions, phase Scheduled, the label of the node, the gate of the pod, the finalizer.
	if vmis := only(done, "virtualmachineinstances", "pods"); len(vmis) > 8 {
		t.Errorf("%d writes of VMI and pod, want at most 8", len(vmis))
	}
	t.eventually("events", func() (bool, error) {
		var events corev1.EventList
		err := cluster.Client.List(t.ctx, &events, client.InNamespace(t.namespace))
		reasons := map[string]int{}
		for _, event := range events.Items {
			reasons[event.InvolvedObject.Kind+" "+event.Reason]++
		}
		return reasons["VirtualMachine SuccessfulCreate"] == 1 && reasons["VirtualMachine SuccessfulDelete"] == 1 &&
			reasons["VirtualMachineInstance SuccessfulCreate"] == 1 &&
			reasons["VirtualMachineInstance SuccessfulDelete"] == 1, err
	})
}

func only(lines []string, resources ...string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		return !slices.ContainsFunc(resources, func(r string) bool {
			return strings.Contains(line, "/"+r+"/") || strings.Contains(line, "/"+r+" ")
		})
	})
}

// quiet holds that nothing is written when nothing happens: two seconds without a write, after what
// was under way.
func (t *test) quiet() {
	t.Helper()
	last, since := len(writes.in(t.namespace)), time.Now()
	t.eventually("quiet", func() (bool, error) {
		if n := len(writes.in(t.namespace)); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > 2*time.Second, nil
	})
}

func TestStopAndStart(tt *testing.T) {
	t := newTest(tt)
	t.createVM(v1.RunStrategyManual)
	t.waitPrintable(v1.VirtualMachineStatusStopped)
	t.request(v1.VirtualMachineStateChangeRequest{Action: v1.StartRequest})
	vmi, pod := t.run("node01")
	if vm := t.waitPrintable(v1.VirtualMachineStatusRunning); len(vm.Status.StateChangeRequests) != 0 {
		t.Errorf("requests left: %+v", vm.Status.StateChangeRequests)
	}

	t.request(
		v1.VirtualMachineStateChangeRequest{Action: v1.StopRequest, UID: &vmi.UID},
		v1.VirtualMachineStateChangeRequest{Action: v1.StartRequest},
	)
	t.waitPrintable(v1.VirtualMachineStatusStopping)
	t.endPod(pod)
	t.waitAnother(vmi.UID)
	again, pod := t.run("node01")
	t.waitPrintable(v1.VirtualMachineStatusRunning)

	t.request(v1.VirtualMachineStateChangeRequest{Action: v1.StopRequest, UID: &again.UID})
	t.endPod(pod)
	t.waitGone(again)
	t.waitPrintable(v1.VirtualMachineStatusStopped)
}

func TestHalt(tt *testing.T) {
	t := newTest(tt)
	t.createVM(v1.RunStrategyAlways)
	vmi, pod := t.run("node01")
	vm := t.waitPrintable(v1.VirtualMachineStatusRunning)
	before := vm.DeepCopy()
	vm.Spec.RunStrategy = new(v1.RunStrategyHalted)
	t.must(cluster.Client.Patch(t.ctx, vm, client.MergeFrom(before)))
	t.endPod(pod)
	t.waitGone(vmi)
	t.waitPrintable(v1.VirtualMachineStatusStopped)
}

// The spec that a VM was started with is kept, and the instance names it; those of earlier starts go.
func TestStartRevision(tt *testing.T) {
	t := newTest(tt)
	vm := t.createVM(v1.RunStrategyAlways)
	vmi, pod := t.run("node01")
	kept := func(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) {
		t.Helper()
		name := fmt.Sprintf("revision-start-vm-%s-%d", vm.UID, vm.Generation)
		if vmi.Status.VirtualMachineRevisionName != name {
			t.Errorf("the instance names %q, want %q", vmi.Status.VirtualMachineRevisionName, name)
		}
		var list appsv1.ControllerRevisionList
		t.must(cluster.Client.List(t.ctx, &list, client.InNamespace(t.namespace)))
		if len(list.Items) != 1 || list.Items[0].Name != name || !metav1.IsControlledBy(&list.Items[0], vm) {
			t.Fatalf("revisions %+v, want %s", list.Items, name)
		}
		var data struct{ Spec v1.VirtualMachineSpec }
		t.must(json.Unmarshal(list.Items[0].Data.Raw, &data))
		if data.Spec.Template == nil || *data.Spec.RunStrategy != v1.RunStrategyAlways {
			t.Errorf("kept %s", list.Items[0].Data.Raw)
		}
	}
	strategy := func(to v1.VirtualMachineRunStrategy) *v1.VirtualMachine {
		t.Helper()
		t.must(cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(vm), vm))
		before := vm.DeepCopy()
		vm.Spec.RunStrategy = &to
		t.must(cluster.Client.Patch(t.ctx, vm, client.MergeFrom(before)))
		return vm
	}
	kept(vm, vmi)
	strategy(v1.RunStrategyHalted)
	t.endPod(pod)
	t.waitGone(vmi)
	vm = strategy(v1.RunStrategyAlways)
	vmi, _ = t.run("node01")
	kept(vm, vmi)
}

func TestCrash(tt *testing.T) {
	t := newTest(tt)
	t.createVM(v1.RunStrategyRerunOnFailure)
	vmi, pod := t.run("node01")
	t.waitPrintable(v1.VirtualMachineStatusRunning)
	t.must(cluster.SetPodStatus(t.ctx, pod, func(status *corev1.PodStatus) { status.Phase = corev1.PodFailed }))
	t.must(cluster.SetVMIPhase(t.ctx, vmi, v1.Failed))
	t.endPod(pod)
	// The first crash of a guest that ran is repaired at once.
	next := t.waitAnother(vmi.UID)
	vm := t.waitVM("failure counted", func(vm *v1.VirtualMachine) bool { return vm.Status.StartFailure != nil })
	if vm.Status.StartFailure.ConsecutiveFailCount != 1 || vm.Status.StartFailure.LastFailedVMIUID != vmi.UID {
		t.Errorf("failure %+v", vm.Status.StartFailure)
	}
	// The second one waits.
	pod = t.waitPod(next)
	t.must(cluster.Bind(t.ctx, pod, "node01"))
	t.waitPhase(v1.Scheduled)
	t.must(cluster.SetPodStatus(t.ctx, pod, func(status *corev1.PodStatus) { status.Phase = corev1.PodFailed }))
	before := time.Now()
	t.must(cluster.SetVMIPhase(t.ctx, next, v1.Failed))
	t.endPod(pod)
	t.waitGone(next)
	vm = t.waitPrintable(v1.VirtualMachineStatusCrashLoopBackOff)
	if vm.Status.StartFailure.ConsecutiveFailCount != 2 ||
		vm.Status.StartFailure.RetryAfterTimestamp.Sub(before) < 15*time.Second {
		t.Errorf("failure %+v", vm.Status.StartFailure)
	}
}

func TestShutDownOnce(tt *testing.T) {
	t := newTest(tt)
	t.createVM(v1.RunStrategyOnce)
	vmi, pod := t.run("node01")
	t.must(cluster.SetPodStatus(t.ctx, pod, func(status *corev1.PodStatus) { status.Phase = corev1.PodSucceeded }))
	t.must(cluster.SetVMIPhase(t.ctx, vmi, v1.Succeeded))
	t.waitPrintable(v1.VirtualMachineStatusStopped)
	t.quiet()
	if got := t.waitPhase(v1.Succeeded); got.UID != vmi.UID {
		t.Error("the instance was replaced")
	}
}

func TestClaim(tt *testing.T) {
	t := newTest(tt)
	t.createVM(v1.RunStrategyAlways, "data")
	vm := t.waitPrintable(v1.VirtualMachineStatusPvcNotFound)
	if i := slices.IndexFunc(vm.Status.Conditions, func(c v1.VirtualMachineCondition) bool {
		return c.Type == v1.VirtualMachineFailure
	}); i < 0 ||
		!strings.Contains(vm.Status.Conditions[i].Message, `"data"`) {
		t.Errorf("conditions %+v", vm.Status.Conditions)
	}
	t.quiet()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: t.namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			VolumeMode:  new(corev1.PersistentVolumeBlock),
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: quantity("1Gi")},
			},
		},
	}
	t.must(cluster.Client.Create(t.ctx, claim))
	t.waitPrintable(v1.VirtualMachineStatusWaitingForVolumeBinding)
	t.setBound(claim, corev1.ResourceList{corev1.ResourceStorage: quantity("1Gi")})
	t.waitPrintable(v1.VirtualMachineStatusStarting)
	vmi, pod := t.run("node01")
	if len(pod.Spec.Containers[0].VolumeDevices) != 1 {
		t.Errorf("devices %+v", pod.Spec.Containers[0].VolumeDevices)
	}
	if info := vmi.Status.VolumeStatus[1].PersistentVolumeClaimInfo; info == nil ||
		info.Capacity.Storage().String() != "1Gi" {
		t.Errorf("volumes %+v", vmi.Status.VolumeStatus)
	}
	t.waitPrintable(v1.VirtualMachineStatusRunning)
}

func TestUnschedulable(tt *testing.T) {
	t := newTest(tt)
	t.createVM(v1.RunStrategyAlways)
	pod := t.waitPod(t.waitVMI("there", func(*v1.VirtualMachineInstance) bool { return true }))
	t.must(cluster.SetPodStatus(t.ctx, pod, func(status *corev1.PodStatus) {
		status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			Message: "0/1 nodes are available",
		}}
	}))
	t.waitPhase(v1.Scheduling)
	t.waitPrintable(v1.VirtualMachineStatusUnschedulable)
	t.run("node01")
	t.waitPrintable(v1.VirtualMachineStatusRunning)
}

func TestImagePull(tt *testing.T) {
	t := newTest(tt)
	t.createVM(v1.RunStrategyAlways)
	pod := t.waitPod(t.waitVMI("there", func(*v1.VirtualMachineInstance) bool { return true }))
	t.must(cluster.Bind(t.ctx, pod, "node01"))
	for _, reason := range []v1.VirtualMachinePrintableStatus{
		v1.VirtualMachineStatusErrImagePull, v1.VirtualMachineStatusImagePullBackOff,
	} {
		t.must(cluster.SetPodStatus(t.ctx, pod, func(status *corev1.PodStatus) {
			status.ContainerStatuses = []corev1.ContainerStatus{{
				Name:  "compute",
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: string(reason)}},
			}}
		}))
		t.waitPrintable(reason)
	}
}

func TestPodDeletedBeforeItRan(tt *testing.T) {
	t := newTest(tt)
	t.createVM(v1.RunStrategyAlways)
	vmi := t.waitPhase(v1.Scheduling) // After a second without a node.
	t.must(cluster.RemovePod(t.ctx, t.waitPod(vmi)))
	t.waitGone(vmi)
	t.waitPrintable(v1.VirtualMachineStatusCrashLoopBackOff)
}

func TestRestartRequired(tt *testing.T) {
	t := newTest(tt)
	t.createVM(v1.RunStrategyAlways)
	t.run("node01")
	vm := t.waitPrintable(v1.VirtualMachineStatusRunning)
	required := func(vm *v1.VirtualMachine) bool {
		return slices.ContainsFunc(vm.Status.Conditions, func(c v1.VirtualMachineCondition) bool {
			return c.Type == v1.VirtualMachineRestartRequired && c.Status == corev1.ConditionTrue
		})
	}
	change := func(memory string) {
		before := vm.DeepCopy()
		vm.Spec.Template.Spec.Domain.Memory.Guest = new(quantity(memory))
		t.must(cluster.Client.Patch(t.ctx, vm, client.MergeFrom(before)))
	}
	change("256Mi")
	t.waitVM("restart required", required)
	change("128Mi")
	t.waitVM("no restart required", func(vm *v1.VirtualMachine) bool {
		return !required(vm) && vm.Status.DesiredGeneration == 3 && vm.Status.ObservedGeneration == 1
	})
}

func TestAdoption(tt *testing.T) {
	t := newTest(tt)
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: t.namespace}}
	t.must(cluster.Client.Create(t.ctx, vmi))
	vm := t.createVM(v1.RunStrategyAlways)
	t.waitVMI("adopted", func(vmi *v1.VirtualMachineInstance) bool { return metav1.IsControlledBy(vmi, vm) })
	t.waitVM("created", func(vm *v1.VirtualMachine) bool { return vm.Status.Created })
}

func TestNameTaken(tt *testing.T) {
	t := newTest(tt)
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Name: "demo", Namespace: t.namespace,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstanceReplicaSet", Name: "set", UID: "set",
			Controller: new(true),
		}},
	}}
	t.must(cluster.Client.Create(t.ctx, vmi))
	t.createVM(v1.RunStrategyAlways)
	t.waitVM("failure told", func(vm *v1.VirtualMachine) bool {
		return slices.ContainsFunc(vm.Status.Conditions, func(c v1.VirtualMachineCondition) bool {
			return c.Type == v1.VirtualMachineFailure && strings.Contains(c.Message, "does not belong")
		})
	})
}

// TestVMIAlone is a VMI without a VM, made without its finalizer.
func TestVMIAlone(tt *testing.T) {
	t := newTest(tt)
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: t.namespace}}
	t.must(cluster.Client.Create(t.ctx, vmi))
	vmi, pod := t.run("node01")
	if !slices.Contains(vmi.Finalizers, v1.VirtualMachineInstanceFinalizer) {
		t.Error("no finalizer")
	}
	t.must(cluster.Client.Delete(t.ctx, vmi))
	t.endPod(pod)
	t.waitGone(vmi)
}
