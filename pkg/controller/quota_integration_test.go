//go:build integration

package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A quota that counts limits gives the pods of VMs limits, by the ratio of the namespace; a VM's own stays.
func TestQuotaOfLimits(tt *testing.T) {
	t := newTest(tt)
	namespace := &corev1.Namespace{}
	t.must(cluster.Client.Get(t.ctx, client.ObjectKey{Name: t.namespace}, namespace))
	namespace.Labels[v1.AutoMemoryLimitsRatioLabel] = "1.5"
	t.must(cluster.Client.Update(t.ctx, namespace))
	t.must(cluster.Client.Create(t.ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "limits"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			corev1.ResourceLimitsCPU: quantity("4"), corev1.ResourceLimitsMemory: quantity("4Gi"),
		}},
	}))
	t.createVM(v1.RunStrategyAlways)
	vmi := t.waitVMI("there", func(*v1.VirtualMachineInstance) bool { return true })
	got := t.waitPod(vmi).Spec.Containers[0].Resources
	memory := got.Requests.Memory().Value() * 3 / 2
	if got.Limits.Cpu().Value() != 1 || got.Limits.Memory().Value() != memory {
		t.Errorf("limits %v, requests %v", got.Limits, got.Requests)
	}
}
