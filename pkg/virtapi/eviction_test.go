package virtapi

import (
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// owned is a pod that belongs to an object.
func owned(name, label, kind, owner string, uid types.UID) *corev1.Pod {
	controller := true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{v1.AppLabel: label},
			OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: owner, UID: uid, Controller: &controller}},
		},
		Spec:   corev1.PodSpec{NodeName: testNode},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func TestEvictions(t *testing.T) {
	const (
		mark      = `PATCH virtualmachineinstances/vm/status {"metadata":{"resourceVersion":"8"},"status":{"evacuationNodeName":"` + testNode + `"}}`
		triggered = `Eviction triggered evacuation of VMI "default/vm"`
	)
	instance := func(change func(*v1.VirtualMachineInstance)) *v1.VirtualMachineInstance {
		strategy := v1.EvictionStrategyLiveMigrate
		vmi := &v1.VirtualMachineInstance{
			TypeMeta: metav1.TypeMeta{
				APIVersion: v1.GroupVersion.String(), Kind: v1.VirtualMachineInstanceGroupVersionKind.Kind,
			},
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "vm", UID: "vmi-uid", ResourceVersion: "8"},
			Spec:       v1.VirtualMachineInstanceSpec{EvictionStrategy: &strategy},
			Status: v1.VirtualMachineInstanceStatus{
				Phase: v1.Running, NodeName: testNode, ActivePods: map[types.UID]string{"virt-launcher-vm": testNode},
				Conditions: []v1.VirtualMachineInstanceCondition{
					{Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue},
				},
			},
		}
		if change != nil {
			change(vmi)
		}
		return vmi
	}
	launcher := owned("virt-launcher-vm", names.VirtLauncher, "VirtualMachineInstance", "vm", "vmi-uid")
	over := launcher.DeepCopy()
	over.Status.Phase = corev1.PodSucceeded
	attachment := owned("hp-volume-x", names.HotplugDisk, "Pod", "virt-launcher-vm", "virt-launcher-vm")
	for name, tc := range map[string]struct {
		vmi       *v1.VirtualMachineInstance
		pods      []runtime.Object
		evicted   string
		cluster   v1.EvictionStrategy
		dryRun    bool
		options   string // of the eviction
		conflicts int
		message   string // empty: allowed
		writes    []string
	}{
		"moved instead":     {vmi: instance(nil), message: triggered, writes: []string{mark}},
		"after a conflict":  {vmi: instance(nil), conflicts: 1, message: triggered, writes: []string{mark}},
		"conflict for ever": {vmi: instance(nil), conflicts: 100, message: "virtkit could not decide on the eviction"},
		"dry run": {
			vmi: instance(nil), dryRun: true, message: triggered, writes: []string{mark + " dryRun=All"},
		},
		"dry run, by options": {
			vmi: instance(nil), options: `{"dryRun":["All"]}`, message: triggered,
			writes: []string{mark + " dryRun=All"},
		},
		"again": {
			vmi:     instance(func(vmi *v1.VirtualMachineInstance) { vmi.Status.EvacuationNodeName = testNode }),
			message: "Evacuation in progress: " + triggered,
		},
		"the cluster's strategy": {
			vmi:     instance(func(vmi *v1.VirtualMachineInstance) { vmi.Spec.EvictionStrategy = nil }),
			cluster: v1.EvictionStrategyExternal,
			message: triggered, writes: []string{mark},
		},
		"no strategy":        {vmi: instance(func(vmi *v1.VirtualMachineInstance) { vmi.Spec.EvictionStrategy = nil })},
		"no such pod":        {vmi: instance(nil), evicted: "virt-launcher-other"},
		"a pod that is over": {vmi: instance(nil), pods: []runtime.Object{over}},
		"another instance":   {vmi: instance(func(vmi *v1.VirtualMachineInstance) { vmi.UID = "new" })},
		"nobody's pod": {
			vmi: instance(nil), pods: []runtime.Object{owned("virt-launcher-vm", "", "ReplicaSet", "vm", "vmi-uid")},
		},
		"a pod that only says so": {
			vmi: instance(nil), evicted: "virt-launcher-x",
			pods: []runtime.Object{
				owned("virt-launcher-x", names.VirtLauncher, "VirtualMachineInstance", "vm", "vmi-uid"),
			},
		},
		"attachment": {
			vmi: instance(nil), evicted: "hp-volume-x", pods: []runtime.Object{launcher, attachment},
			message: `the pod holds a volume that is plugged into VMI "default/vm"`,
		},
		"attachment left behind": {vmi: instance(nil), evicted: "hp-volume-x", pods: []runtime.Object{attachment}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, map[string]any{"virtualmachineinstances/vm": tc.vmi}, nil)
			c.conflicts = tc.conflicts
			if tc.pods == nil {
				tc.pods = []runtime.Object{launcher}
			}
			for _, pod := range tc.pods {
				if err := c.core.Tracker().Add(pod.DeepCopyObject()); err != nil {
					t.Fatal(err)
				}
			}
			if tc.evicted == "" {
				tc.evicted = "virt-launcher-vm"
			}
			if tc.options == "" {
				tc.options = "{}"
			}
			e := evictions{machines: c.q.machines, strategy: func() v1.EvictionStrategy { return tc.cluster }}
			response, err := e.admit(t.Context(), &admissionv1.AdmissionRequest{
				Operation: admissionv1.Create, Namespace: "default", Name: tc.evicted, DryRun: &tc.dryRun,
				SubResource: "eviction",
				Resource:    metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
				Object: runtime.RawExtension{
					Raw: fmt.Appendf(nil, `{"apiVersion":"policy/v1","kind":"Eviction","deleteOptions":%s}`,
						tc.options),
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			if response.Allowed != (tc.message == "") {
				t.Fatalf("allowed: %t, %+v", response.Allowed, response.Result)
			}
			if !response.Allowed &&
				(response.Result.Code != 429 || response.Result.Reason != metav1.StatusReasonTooManyRequests ||
					!strings.HasPrefix(response.Result.Message, tc.message)) {
				t.Errorf("denied with %+v", response.Result)
			}
			if writes := c.written(); strings.Join(writes, "\n") != strings.Join(tc.writes, "\n") {
				t.Errorf("writes\n%s\nwant\n%s", strings.Join(writes, "\n"), strings.Join(tc.writes, "\n"))
			}
		})
	}
}
