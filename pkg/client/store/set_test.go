package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	v1 "kubevirt.io/api/core/v1"
	poolv1beta1 "kubevirt.io/api/pool/v1beta1"
)

func TestSets(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	meta := metav1.ObjectMeta{Namespace: "prod", Name: "db", UID: "u", CreationTimestamp: at}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
	three, memory, half := int32(3), resource.MustParse("2Gi"), intstr.FromString("50%")
	spec := v1.VirtualMachineInstanceSpec{
		Domain: v1.DomainSpec{CPU: &v1.CPU{Cores: 2}, Memory: &v1.Memory{Guest: &memory}},
	}
	strategy, sorted, offline, starts := v1.RunStrategyAlways, poolv1beta1.VirtualMachinePoolSortPolicyNewest,
		poolv1beta1.StatePreservationOffline, uint32(5)
	policy := &poolv1beta1.VirtualMachinePoolSelectionPolicy{SortPolicy: &sorted}
	pool := &poolv1beta1.VirtualMachinePool{
		ObjectMeta: meta, Spec: poolv1beta1.VirtualMachinePoolSpec{
			Replicas: &three, Selector: selector, Paused: true, MaxUnavailable: &half,
			VirtualMachineTemplate: &poolv1beta1.VirtualMachineTemplateSpec{Spec: v1.VirtualMachineSpec{
				RunStrategy: &strategy, Template: &v1.VirtualMachineInstanceTemplateSpec{Spec: spec},
				Preference: &v1.PreferenceMatcher{Name: "fedora"},
			}},
			UpdateStrategy: &poolv1beta1.VirtualMachinePoolUpdateStrategy{
				Opportunistic: &poolv1beta1.VirtualMachineOpportunisticUpdateStrategy{},
			},
			ScaleInStrategy: &poolv1beta1.VirtualMachinePoolScaleInStrategy{
				Proactive: &poolv1beta1.VirtualMachinePoolProactiveScaleInStrategy{
					SelectionPolicy: policy, StatePreservation: &offline,
				},
			},
			Autohealing: &poolv1beta1.VirtualMachinePoolAutohealingStrategy{StartUpFailureThreshold: &starts},
		},
		Status: poolv1beta1.VirtualMachinePoolStatus{
			Replicas: 2, ReadyReplicas: 1,
			Conditions: []poolv1beta1.VirtualMachinePoolCondition{
				{
					Type: poolv1beta1.VirtualMachinePoolReplicaFailure, Status: corev1.ConditionTrue,
					LastTransitionTime: at, Reason: "FailedCreate", Message: "quota",
				},
				{
					Type: poolv1beta1.VirtualMachinePoolReplicaPaused, Status: corev1.ConditionFalse,
					LastTransitionTime: at,
				},
			},
		},
	}
	want := &Set{
		Namespace: "prod", Name: "db", Resource: Pools, Kind: "VirtualMachinePool", UID: "u", Created: at.Time,
		Desired: 3, Current: 2, Ready: 1, Paused: true,
		Failure: "FailedCreate: quota", Conditions: []Condition{
			{"ReplicaFailure", corev1.ConditionTrue, at.Time, "FailedCreate", "quota"},
			{"ReplicaPaused", corev1.ConditionFalse, at.Time, "", ""},
		}, Spec: [][2]string{
			{"Selector", "app=db"},
			{"Run strategy", "Always"},
			{"Each", "2 CPUs, 2Gi"},
			{"Preference", "fedora"},
			{"Unavailable", "at most 50% during an update"},
			{"Update", "opportunistic"},
			{"Scale in", "proactive, order Newest, state Offline"},
			{"Autohealing", "after 5 failed starts"},
		},
	}
	if diff := cmp.Diff(want, OfPool(pool)); diff != "" {
		t.Error(diff)
	}
	set := &v1.VirtualMachineInstanceReplicaSet{
		ObjectMeta: meta,
		Spec: v1.VirtualMachineInstanceReplicaSetSpec{
			Selector: selector, Template: &v1.VirtualMachineInstanceTemplateSpec{Spec: spec},
		},
	}
	want = &Set{
		Namespace: "prod", Name: "db", Resource: ReplicaSets, Kind: "VirtualMachineInstanceReplicaSet", UID: "u",
		Created: at.Time, Desired: 1,
		Spec: [][2]string{{"Selector", "app=db"}, {"Each", "2 CPUs, 2Gi"}},
	}
	if diff := cmp.Diff(want, OfReplicaSet(set)); diff != "" {
		t.Error(diff)
	}
}

// TestMachinesOfSets joins the parts of machines: the set that made it is known of each.
func TestMachinesOfSets(t *testing.T) {
	pool, set := &poolv1beta1.VirtualMachinePool{ObjectMeta: metav1.ObjectMeta{UID: "pool"}},
		&v1.VirtualMachineInstanceReplicaSet{ObjectMeta: metav1.ObjectMeta{UID: "set"}}
	vm := v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{
			Name: "of-pool", UID: "vm",
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(pool, poolv1beta1.SchemeGroupVersion.WithKind("VirtualMachinePool")),
			},
		},
	}
	vmi := v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{
			Name:            "of-pool",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&vm, v1.VirtualMachineGroupVersionKind)},
		},
	}
	member := v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{
			Name: "of-set",
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(set, v1.VirtualMachineInstanceReplicaSetGroupVersionKind),
			},
		},
	}
	m := NewMachines(func() {})
	m.Load([]v1.VirtualMachine{vm}, []v1.VirtualMachineInstance{vmi, member})
	got := map[string]string{}
	for _, row := range m.Rows() {
		got[row.Name] = string(row.Owner)
	}
	if diff := cmp.Diff(map[string]string{"of-pool": "pool", "of-set": "set"}, got); diff != "" {
		t.Error(diff)
	}
}
