//go:build integration

package controller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Two VMs whose long names differ at their ends have pods of their own, found by their labels.
func TestLongNames(tt *testing.T) {
	t := newTest(tt)
	begin := strings.Repeat("a", 252)
	always := v1.RunStrategyAlways
	seen := map[string]bool{}
	for _, name := range []string{begin + "1", begin + "2"} {
		t.must(cluster.Client.Create(t.ctx, &v1.VirtualMachine{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: t.namespace},
			Spec: v1.VirtualMachineSpec{RunStrategy: &always, Template: &v1.VirtualMachineInstanceTemplateSpec{
				Spec: v1.VirtualMachineInstanceSpec{
					Architecture: "amd64", Domain: v1.DomainSpec{Memory: &v1.Memory{Guest: new(quantity("128Mi"))}},
				},
			}},
		}))
		t.eventually("the pod of "+name, func() (bool, error) {
			var pods corev1.PodList
			err := cluster.Client.List(t.ctx, &pods, client.InNamespace(t.namespace))
			for i := range pods.Items {
				pod := &pods.Items[i]
				if pod.Annotations[v1.DomainAnnotation] == name {
					label := pod.Labels[v1.VirtualMachineInstanceIDLabel]
					if seen[label] {
						t.Errorf("two VMs have the label %s", label)
					}
					seen[label] = true
					return true, nil
				}
			}
			return false, err
		})
	}
}
