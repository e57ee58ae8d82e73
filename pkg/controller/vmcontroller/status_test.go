package vmcontroller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/vm/instancetype"
	"github.com/virtkit/virtkit/pkg/vm/macaddress"
	"github.com/virtkit/virtkit/pkg/vm/reserved"
	"github.com/virtkit/virtkit/pkg/vm/rollout"
)

func with(conditionType v1.VirtualMachineInstanceConditionType, status corev1.ConditionStatus, reason string,
) func(*v1.VirtualMachineInstance) {
	return func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.Conditions = append(vmi.Status.Conditions, v1.VirtualMachineInstanceCondition{
			Type: conditionType, Status: status, Reason: reason, Message: "because",
			LastTransitionTime: at(time.Minute),
		})
	}
}

func pods(reason string) []*corev1.Pod {
	return []*corev1.Pod{{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}},
	}}}}}
}

// beside has a container beside the guest's wait, and the guest's for that.
func beside(reason string) []*corev1.Pod {
	out := pods("PodInitializing")
	out[0].Status.InitContainerStatuses = pods(reason)[0].Status.ContainerStatuses
	return out
}

func claimsIn(phase corev1.PersistentVolumeClaimPhase) []*corev1.PersistentVolumeClaim {
	return []*corev1.PersistentVolumeClaim{{Status: corev1.PersistentVolumeClaimStatus{Phase: phase}}}
}

// TestPrintable drives every status from objects as they are found, in the order of precedence.
func TestPrintable(t *testing.T) {
	always, halted := v1.RunStrategyAlways, v1.RunStrategyHalted
	unschedulable := with(v1.VirtualMachineInstanceConditionType(corev1.PodScheduled), corev1.ConditionFalse,
		corev1.PodReasonUnschedulable)
	paused := with(v1.VirtualMachineInstancePaused, corev1.ConditionTrue, "PausedByUser")
	migrates := func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{StartTimestamp: new(at(0))}
	}
	cases := []struct {
		name string
		view View
		want v1.VirtualMachinePrintableStatus
	}{
		{"deleted", View{VM: testVM(always, going), VMI: testVMI(v1.Running)}, "Terminating"},
		{"instance deleted", View{VM: testVM(halted), VMI: testVMI(v1.Running, deleted, paused)}, "Stopping"},
		{"migrating", View{VM: testVM(always), VMI: testVMI(v1.Running, migrates, paused)}, "Migrating"},
		{"paused", View{VM: testVM(always), VMI: testVMI(v1.Running, paused)}, "Paused"},
		{"running", View{VM: testVM(always), VMI: testVMI(v1.Running)}, "Running"},
		{
			"no such claim",
			View{
				VM: testVM(always),
				VMI: testVMI(v1.Pending,
					with(v1.VirtualMachineInstanceSynchronized, corev1.ConditionFalse,
						vmicontroller.ReasonFailedPvcNotFound)),
			},
			"ErrorPvcNotFound",
		},
		{"no node", View{VM: testVM(always), VMI: testVMI(v1.Scheduling, unschedulable)}, "ErrorUnschedulable"},
		{
			"provisioning",
			View{
				VM:  testVM(always),
				VMI: testVMI(v1.Pending, with(v1.VirtualMachineInstanceProvisioning, corev1.ConditionTrue, "")),
			},
			"Provisioning",
		},
		{"DataVolume filled by now", imported(cdiv1.Succeeded, false), "Starting"},
		{"DataVolume being filled", imported(cdiv1.ImportInProgress, true), "Provisioning"},
		{"DataVolume not begun", imported("", false), "Provisioning"},
		{"DataVolume waits for a pod", imported(cdiv1.WaitForFirstConsumer, false), "WaitingForVolumeBinding"},
		{"DataVolume waits for a pod, bound", imported(cdiv1.WaitForFirstConsumer, true), "Provisioning"},
		{"DataVolume to be filled with its pod", imported(cdiv1.PendingPopulation, false), "WaitingForVolumeBinding"},
		{"DataVolume failed", imported(cdiv1.Failed, true), "DataVolumeError"},
		{
			"claim not bound",
			View{VM: testVM(always), VMI: testVMI(v1.Scheduling), Claims: claimsIn(corev1.ClaimPending)},
			"WaitingForVolumeBinding",
		},
		{
			"claim not bound, so no node",
			View{VM: testVM(always), VMI: testVMI(v1.Scheduling, unschedulable), Claims: claimsIn(corev1.ClaimPending)},
			"WaitingForVolumeBinding",
		},
		{"image", View{VM: testVM(always), VMI: testVMI(v1.Scheduled), Pods: pods("ErrImagePull")}, "ErrImagePull"},
		{
			"image, waiting",
			View{VM: testVM(always), VMI: testVMI(v1.Scheduled), Pods: pods("ImagePullBackOff")},
			"ImagePullBackOff",
		},
		{
			"image of a container beside the guest's",
			View{VM: testVM(always), VMI: testVMI(v1.Scheduled), Pods: beside("ErrImagePull")},
			"ErrImagePull",
		},
		{
			"image of a container beside the guest's, waiting",
			View{VM: testVM(always), VMI: testVMI(v1.Scheduled), Pods: beside("ImagePullBackOff")},
			"ImagePullBackOff",
		},
		{
			"container beside the guest's being made",
			View{VM: testVM(always), VMI: testVMI(v1.Scheduled), Pods: beside("PodInitializing")},
			"Starting",
		},
		{
			"container being made",
			View{VM: testVM(always), VMI: testVMI(v1.Scheduled), Pods: pods("ContainerCreating")},
			"Starting",
		},
		{
			"claim bound",
			View{VM: testVM(always), VMI: testVMI(v1.Scheduling), Claims: claimsIn(corev1.ClaimBound)},
			"Starting",
		},
		{"new instance", View{VM: testVM(always), VMI: testVMI("")}, "Starting"},
		{"instance to come", View{VM: testVM(always)}, "Starting"},
		{"instance to come again", View{VM: testVM(always), VMI: testVMI(v1.Succeeded)}, "Starting"},
		{"waits after failures", View{VM: testVM(always, failed(2, "x", time.Minute))}, "CrashLoopBackOff"},
		{
			"waits with the failed instance",
			View{VM: testVM(always), VMI: testVMI(v1.Failed, since(v1.Failed, 0))},
			"CrashLoopBackOff",
		},
		{"halted", View{VM: testVM(halted)}, "Stopped"},
		{"ended", View{VM: testVM(v1.RunStrategyOnce), VMI: testVMI(v1.Succeeded)}, "Stopped"},
		{"ended and being removed", View{VM: testVM(halted), VMI: testVMI(v1.Succeeded, deleted)}, "Stopped"},
		{"receiver", View{VM: testVM(always), VMI: testVMI(v1.WaitingForSync)}, "WaitingForReceiver"},
		{"node lost", View{VM: testVM(always), VMI: testVMI(v1.Unknown)}, "Unknown"},
	}
	missing := map[v1.VirtualMachinePrintableStatus]bool{v1.VirtualMachineStatusUnknown: true}
	for _, printable := range printables {
		missing[printable.status] = true
	}
	for _, c := range cases {
		delete(missing, c.want)
	}
	if len(missing) > 0 {
		t.Errorf("no case for %v", missing)
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.view.Now = now
			decision, err := Decide(c.view)
			if err != nil {
				t.Fatal(err)
			}
			if got := Printable(c.view, decision); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func status(t *testing.T, view View) v1.VirtualMachineStatus {
	t.Helper()
	view.Now = now
	decision, err := Decide(view)
	if err != nil {
		t.Fatal(err)
	}
	got := Status(view, decision)
	// Read again it must come out the same, or it is written for ever.
	again := view
	again.VM = view.VM.DeepCopy()
	again.VM.Status = got
	again.Now = now.Add(time.Second)
	if decision.Action == Keep {
		second, err := Decide(again)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, Status(again, second)); diff != "" {
			t.Errorf("not stable\n%s", diff)
		}
	}
	return got
}

func conditionsOf(status v1.VirtualMachineStatus) map[string]string {
	out := map[string]string{}
	for _, c := range status.Conditions {
		out[string(c.Type)] = string(c.Status) + " " + c.Reason
	}
	return out
}

func TestStatus(t *testing.T) {
	made, err := Instance(testVM(v1.RunStrategyAlways), false)
	if err != nil {
		t.Fatal(err)
	}
	made.Status.Phase = v1.Running
	with(v1.VirtualMachineInstanceReady, corev1.ConditionTrue, "")(made)

	t.Run("running", func(t *testing.T) {
		got := status(t, View{VM: testVM(v1.RunStrategyAlways, never), VMI: made})
		if !got.Created || !got.Ready || got.RunStrategy != "Always" || got.ObservedGeneration != 3 ||
			got.DesiredGeneration != 3 {
			t.Errorf("%+v", got)
		}
		if diff := cmp.Diff(map[string]string{"Ready": "True "}, conditionsOf(got)); diff != "" {
			t.Error(diff)
		}
		if !got.Conditions[0].LastTransitionTime.Equal(new(at(time.Minute))) {
			t.Errorf("transition at %s, want the VMI's", got.Conditions[0].LastTransitionTime)
		}
	})
	t.Run("template changed", func(t *testing.T) {
		changed := testVM(v1.RunStrategyAlways)
		changed.Generation, changed.Spec.Template.Spec.Domain.CPU.Cores = 4, 8
		got := status(t, View{VM: changed, VMI: made})
		if got.DesiredGeneration != 4 || got.ObservedGeneration != 3 ||
			conditionsOf(got)["RestartRequired"] != "True RestartRequired" {
			t.Errorf("%+v", got)
		}
		for _, c := range got.Conditions {
			if c.Type == v1.VirtualMachineRestartRequired &&
				c.Message != "a non-live-updatable field was changed in the template spec: "+
					"spec.template.spec.domain.cpu.cores" {
				t.Errorf("message %q", c.Message)
			}
		}
		changed.Status, changed.Generation, changed.Spec.Template.Spec.Domain.CPU.Cores = got, 5, 2
		if got := status(t, View{VM: changed, VMI: made}); conditionsOf(got)["RestartRequired"] != "" {
			t.Errorf("changed back: %+v", got.Conditions)
		}
	})
	t.Run("only the strategy changed", func(t *testing.T) {
		changed := testVM(v1.RunStrategyManual)
		changed.Generation = 4
		if got := status(t, View{VM: changed, VMI: made}); conditionsOf(got)["RestartRequired"] != "" {
			t.Errorf("%+v", got.Conditions)
		}
	})
	t.Run("stopped", func(t *testing.T) {
		got := status(t, View{VM: testVM(v1.RunStrategyHalted)})
		if got.Created || got.Ready || got.ObservedGeneration != 0 || got.PrintableStatus != "Stopped" {
			t.Errorf("%+v", got)
		}
		if diff := cmp.Diff(map[string]string{"Ready": "False VMINotExists"}, conditionsOf(got)); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("paused, then not", func(t *testing.T) {
		vm := testVM(v1.RunStrategyAlways)
		got := status(t, View{
			VM:  vm,
			VMI: testVMI(v1.Running, with(v1.VirtualMachineInstancePaused, corev1.ConditionTrue, "PausedByUser")),
		})
		if conditionsOf(got)["Paused"] != "True PausedByUser" {
			t.Errorf("%+v", got.Conditions)
		}
		vm.Status = got
		if got := status(t, View{VM: vm, VMI: testVMI(v1.Running)}); conditionsOf(got)["Paused"] != "" {
			t.Errorf("%+v", got.Conditions)
		}
	})
	t.Run("failures", func(t *testing.T) {
		view := View{
			VM: testVM(v1.RunStrategyHalted), Failure: "quota", FailureReason: vmicontroller.ReasonFailedCreate,
		}
		if got := status(t, view); conditionsOf(got)["Failure"] != "True FailedCreate" {
			t.Errorf("%+v", got.Conditions)
		}
		view = View{
			VM: testVM(v1.RunStrategyAlways),
			VMI: testVMI(v1.Pending,
				with(v1.VirtualMachineInstanceSynchronized, corev1.ConditionFalse, vmicontroller.ReasonFailedCreate)),
		}
		if got := status(t, view); conditionsOf(got)["Failure"] != "True FailedCreate" {
			t.Errorf("%+v", got.Conditions)
		}
	})
	t.Run("image that cannot be had, then can", func(t *testing.T) {
		view := View{VM: testVM(v1.RunStrategyAlways), VMI: testVMI(v1.Scheduled), Pods: pods("ImagePullBackOff")}
		view.Pods[0].Status.ContainerStatuses[0].State.Waiting.Message = "no such host"
		got := status(t, view)
		if conditionsOf(got)["Failure"] != "True ImagePullBackOff" || got.Conditions[1].Message != "no such host" {
			t.Errorf("%+v", got.Conditions)
		}
		view.VM.Status, view.Pods = got, pods("ContainerCreating")
		if got := status(t, view); conditionsOf(got)["Failure"] != "" {
			t.Errorf("%+v", got.Conditions)
		}
	})
	t.Run("no node, then one", func(t *testing.T) {
		const podScheduled = v1.VirtualMachineInstanceConditionType(corev1.PodScheduled)
		view := View{
			VM:  testVM(v1.RunStrategyAlways),
			VMI: testVMI(v1.Scheduling, with(podScheduled, corev1.ConditionFalse, corev1.PodReasonUnschedulable)),
		}
		got := status(t, view)
		if conditionsOf(got)["PodScheduled"] != "False Unschedulable" {
			t.Errorf("%+v", got.Conditions)
		}
		view.VM.Status, view.VMI = got, testVMI(v1.Scheduled)
		if got := status(t, view); conditionsOf(got)["PodScheduled"] != "" {
			t.Errorf("%+v", got.Conditions)
		}
	})
	t.Run("strategy is recorded when it has begun", func(t *testing.T) {
		if got := status(t, View{VM: testVM(v1.RunStrategyOnce, never)}); got.RunStrategy != "" {
			t.Errorf("recorded %q without an instance", got.RunStrategy)
		}
		if got := status(t, View{VM: testVM(v1.RunStrategyOnce, never), VMI: testVMI("")}); got.RunStrategy != "Once" {
			t.Errorf("recorded %q", got.RunStrategy)
		}
	})
}

func TestInstance(t *testing.T) {
	vm := testVM(v1.RunStrategyAlways)
	// As a preference may add them: they are not the guest's to say.
	for _, key := range reserved.Keys() {
		vm.Spec.Template.ObjectMeta.Annotations[key] = "{}"
	}
	got, err := Instance(vm, true)
	if err != nil {
		t.Fatal(err)
	}
	want := &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{
			Name: "demo", Namespace: "default",
			Labels: map[string]string{"app": "web", "kubevirt.io/vm": "demo"},
			Annotations: map[string]string{
				"note":                         "x",
				"kubevirt.io/vm-generation":    "3",
				rollout.TemplateHashAnnotation: got.Annotations[rollout.TemplateHashAnnotation],
				rollout.InterfacesAnnotation:   "{}",
				macaddress.Annotation: `{"vm":"default/demo","interfaces":{"default":"` +
					macaddress.Stable("vm", "default") + `"}}`,
			},
			Finalizers:      []string{v1.VirtualMachineInstanceFinalizer},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)},
		},
		Spec: v1.VirtualMachineInstanceSpec{
			StartStrategy: new(v1.StartStrategyPaused),
			Domain: v1.DomainSpec{
				CPU: &v1.CPU{Cores: 2},
				// The UUID that KubeVirt gives a VM of this name.
				Firmware: &v1.Firmware{UUID: "c89d1344-ee03-5c55-99bd-5df16b72bea0"},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if vm.Spec.Template.Spec.Domain.Firmware != nil {
		t.Error("the VM's template was changed")
	}
	vm.Spec.Template.ObjectMeta.Labels[v1.VirtualMachineLabel] = "mine"
	vm.Spec.Template.Spec.Domain.Firmware = &v1.Firmware{UUID: "given"}
	got, err = Instance(vm, false)
	if err != nil || got.Labels[v1.VirtualMachineLabel] != "mine" || got.Spec.Domain.Firmware.UUID != "given" ||
		got.Spec.StartStrategy != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestRestartMessage(t *testing.T) {
	const words = "a non-live-updatable field was changed in the template spec"
	vm := testVM(v1.RunStrategyAlways)
	made, err := Instance(vm, false)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func(*v1.VirtualMachineInstanceSpec)
		want   string
	}{
		"taken out": {
			func(s *v1.VirtualMachineInstanceSpec) { s.Domain.CPU = nil },
			words + ": it was removed, or says now what the guest has anyway",
		},
		"volume": {
			func(s *v1.VirtualMachineInstanceSpec) { s.Volumes = append(s.Volumes, v1.Volume{Name: "more"}) },
			words + ": spec.template.spec.volumes[more]",
		},
		"many": {func(s *v1.VirtualMachineInstanceSpec) {
			for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
				s.Volumes = append(s.Volumes, v1.Volume{Name: name})
			}
		}, words + ": spec.template.spec.volumes[a], spec.template.spec.volumes[b], spec.template.spec.volumes[c], " +
			"spec.template.spec.volumes[d], spec.template.spec.volumes[e] and 2 more"},
	} {
		changed := vm.DeepCopy()
		changed.Spec.Template.Spec.Volumes, changed.Spec.Template.Spec.Networks = nil, nil
		test.change(&changed.Spec.Template.Spec)
		if got := restartMessage(View{VM: changed, VMI: made}); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	vm.Spec.Instancetype = &v1.InstancetypeMatcher{Name: "nosuch"}
	missing := &instancetype.NotFoundError{
		Role: instancetype.Instancetype, Field: field.NewPath("spec", "instancetype"), Detail: `"nosuch" is not there`,
	}
	const want = words + `: it is not known which (spec.instancetype: "nosuch" is not there)`
	if got := restartMessage(View{VM: vm, VMI: made, Missing: missing}); got != want {
		t.Errorf("the instance type is missing: %q, want %q", got, want)
	}
}

// A VM has the conditions of its VMI, in the same words, as KubeVirt's clients wait for them; none of one that is gone.
func TestConditionsOfTheInstance(t *testing.T) {
	vm := testVM(v1.RunStrategyAlways)
	vmi := &v1.VirtualMachineInstance{}
	vmi.Status.Phase = v1.Running
	since := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	for _, c := range []v1.VirtualMachineInstanceCondition{
		{Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue},
		{Type: v1.VirtualMachineInstanceAgentConnected, Status: corev1.ConditionTrue},
		{
			Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionFalse,
			Reason: "DisksNotLiveMigratable", Message: "a claim is ReadWriteOnce",
		},
	} {
		c.LastTransitionTime = since
		vmi.Status.Conditions = append(vmi.Status.Conditions, c)
	}
	vm.Status = Status(View{VM: vm, VMI: vmi}, Decision{})
	got := map[v1.VirtualMachineConditionType]v1.VirtualMachineCondition{}
	for _, c := range vm.Status.Conditions {
		got[c.Type] = c
	}
	migratable := got["LiveMigratable"]
	if len(got) != 3 || got["AgentConnected"].Status != corev1.ConditionTrue ||
		migratable.Status != corev1.ConditionFalse || migratable.Reason != "DisksNotLiveMigratable" ||
		migratable.Message != "a claim is ReadWriteOnce" || !migratable.LastTransitionTime.Equal(&since) {
		t.Errorf("%+v", vm.Status.Conditions)
	}
	vm.Status = Status(View{VM: vm}, Decision{})
	if c := vm.Status.Conditions; len(c) != 1 || c[0].Type != v1.VirtualMachineReady || c[0].Reason != reasonNoVMI {
		t.Errorf("without an instance: %+v", c)
	}
}
