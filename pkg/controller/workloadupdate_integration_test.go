//go:build integration

package controller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
)

// The test plays the nodes, and an older installation. It runs alone, since the strategy is for all guests.
func TestWorkloadUpdate(tt *testing.T) {
	t := newSerialTest(tt)
	t.createVM(v1.RunStrategyManual)
	t.request(v1.VirtualMachineStateChangeRequest{Action: v1.StartRequest})
	vmi, pod := t.run("node01")
	kv := &v1.KubeVirt{}
	key := types.NamespacedName{Namespace: names.Namespace, Name: names.KubeVirt}
	change := func(what string, change func(*v1.KubeVirt)) {
		t.Helper()
		t.eventually(what, func() (bool, error) {
			if err := cluster.Client.Get(t.ctx, key, kv); err != nil {
				return false, err
			}
			before := kv.DeepCopy()
			change(kv)
			return true, cluster.Client.Patch(t.ctx, kv, client.MergeFrom(before))
		})
	}
	migratable := func(status corev1.ConditionStatus) func(*v1.VirtualMachineInstanceStatus) {
		return func(s *v1.VirtualMachineInstanceStatus) {
			s.LauncherContainerImageVersion = "registry.example/virt-launcher:old"
			s.Conditions = append(s.Conditions,
				v1.VirtualMachineInstanceCondition{Type: v1.VirtualMachineInstanceIsMigratable, Status: status})
		}
	}
	outdated := func(want int) {
		t.Helper()
		t.eventually("count of outdated guests", func() (bool, error) {
			err := cluster.Client.Get(t.ctx, key, kv)
			got := kv.Status.OutdatedVirtualMachineInstanceWorkloads
			return err == nil && got != nil && *got == want, err
		})
	}
	defer change("strategy taken back", func(kv *v1.KubeVirt) {
		kv.Spec.WorkloadUpdateStrategy = v1.KubeVirtWorkloadUpdateStrategy{}
	})

	t.changeVMI(migratable(corev1.ConditionFalse))
	t.waitVMI("labelled", func(vmi *v1.VirtualMachineInstance) bool {
		_, ok := vmi.Labels[v1.OutdatedLauncherImageLabel]
		return ok
	})
	outdated(1)

	// Only what the strategy allows is done.
	t.deployComponents()
	t.quiet()
	if pod := t.waitPod(vmi); pod.DeletionTimestamp != nil {
		t.Fatal("evicted without a strategy")
	}
	change("strategy", func(kv *v1.KubeVirt) {
		kv.Spec.WorkloadUpdateStrategy.WorkloadUpdateMethods = []v1.WorkloadUpdateMethod{
			v1.WorkloadUpdateMethodEvict, v1.WorkloadUpdateMethodLiveMigrate,
		}
	})
	t.eventually("eviction", func() (bool, error) {
		err := cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(pod), pod)
		return err == nil && pod.DeletionTimestamp != nil, err
	})
	t.endPod(pod)
	t.must(cluster.SetVMIPhase(t.ctx, vmi, v1.Failed))
	outdated(0)

	// A guest that can move does.
	t.request(v1.VirtualMachineStateChangeRequest{Action: v1.StartRequest})
	t.waitAnother(vmi.UID)
	t.run("node01")
	t.changeVMI(migratable(corev1.ConditionTrue))
	var migrations v1.VirtualMachineInstanceMigrationList
	t.eventually("migration", func() (bool, error) {
		err := cluster.Client.List(t.ctx, &migrations, client.InNamespace(t.namespace))
		return len(migrations.Items) > 0, err
	})
	t.quiet()
	t.must(cluster.Client.List(t.ctx, &migrations, client.InNamespace(t.namespace)))
	if m := migrations.Items[0]; len(migrations.Items) != 1 ||
		!strings.HasPrefix(m.Name, "kubevirt-workload-update-") || m.Spec.VMIName != "demo" {
		t.Errorf("migrations %+v", migrations.Items)
	}
	outdated(1)
	t.changeVMI(func(s *v1.VirtualMachineInstanceStatus) {
		s.LauncherContainerImageVersion = "registry.example/virt-launcher:test"
	})
	t.waitVMI("labelled no more", func(vmi *v1.VirtualMachineInstance) bool {
		_, ok := vmi.Labels[v1.OutdatedLauncherImageLabel]
		return !ok
	})
	outdated(0)
	t.quiet()
}
