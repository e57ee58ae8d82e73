//go:build e2e

package e2e

import (
	"fmt"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// scaleTo writes the scale subresource, as kubectl scale does.
func (c *cluster) scaleTo(t *testing.T, object client.Object, replicas int32) {
	t.Helper()
	eventually(t, 10*time.Second, fmt.Sprintf("%s is scaled to %d", object.GetName(), replicas), func() string {
		scale := &autoscalingv1.Scale{}
		if err := c.Client.SubResource("scale").Get(t.Context(), object, scale); err != nil {
			return err.Error()
		}
		scale.Spec.Replicas = replicas
		if err := c.Client.SubResource("scale").Update(t.Context(),
			object, client.WithSubResourceBody(scale)); err != nil {
			return err.Error()
		}
		return ""
	})
}

// A set of guests grows, replaces one whose pod is evicted, shrinks to the one that is asked for, and takes its guests
// with it.
func TestReplicaSet(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	labels := map[string]string{"app": "web"}
	template := newVM(ns, "web", v1.RunStrategyAlways, func(vm *v1.VirtualMachine) {
		vm.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr(int64(0))
	}).Spec.Template
	template.ObjectMeta.Labels = labels
	set := &v1.VirtualMachineInstanceReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
		Spec: v1.VirtualMachineInstanceReplicaSetSpec{
			Replicas: ptr(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template,
		},
	}
	if err := c.Client.Create(t.Context(), set); err != nil {
		t.Fatalf("create replica set: %v", err)
	}
	members := func() []v1.VirtualMachineInstance {
		t.Helper()
		var list v1.VirtualMachineInstanceList
		if err := c.Client.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
		return list.Items
	}
	ready := func(n int32) {
		t.Helper()
		eventually(t, 2*time.Minute, fmt.Sprintf("%d of %d are ready", n, n), func() string {
			if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
				return err.Error()
			}
			if vmis := members(); set.Status.Replicas != n || set.Status.ReadyReplicas != n || len(vmis) != int(n) {
				return fmt.Sprintf("%+v, %d instances", set.Status, len(vmis))
			}
			return ""
		})
	}
	ready(2)
	c.scaleTo(t, set, 3)
	ready(3)
	// An autoscaler that wants three at least and at most; nothing measures here.
	hpa := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{
				APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstanceReplicaSet", Name: "web",
			},
			MinReplicas: ptr(int32(3)), MaxReplicas: 3,
		},
	}
	if err := c.Client.Create(t.Context(), hpa); err != nil {
		t.Fatal(err)
	}

	gone := members()[0]
	g := &guest{cluster: c, ns: ns, name: gone.Name}
	g.drain(t, g.pod(t).Name)
	eventually(t, 30*time.Second, "the guest that was evicted is gone", func() string {
		for _, vmi := range members() {
			if vmi.UID == gone.UID {
				return "it is there, " + string(vmi.Status.Phase)
			}
		}
		return ""
	})
	ready(3)

	eventually(t, time.Minute, "the autoscaler reads the set's scale", func() string {
		if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(hpa), hpa); err != nil {
			return err.Error()
		}
		for _, condition := range hpa.Status.Conditions {
			if condition.Type == autoscalingv2.AbleToScale && condition.Status == corev1.ConditionTrue {
				return ""
			}
		}
		return fmt.Sprintf("%+v", hpa.Status.Conditions)
	})
	if err := c.Client.Delete(t.Context(), hpa); err != nil {
		t.Fatal(err)
	}

	c.scaleTo(t, set, 1)
	ready(1)
	if err := c.Client.Delete(t.Context(), set,
		client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "nothing is left", func() string {
		if n := len(members()); n > 0 {
			return fmt.Sprintf("%d instances", n)
		}
		return ""
	})
}
