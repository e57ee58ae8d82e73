//go:build integration

package controller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/controller/disruptioncontroller"
)

// waitEvacuation waits for a migration that was made to move the VMI.
func (t *test) waitEvacuation() *v1.VirtualMachineInstanceMigration {
	t.Helper()
	var migrations v1.VirtualMachineInstanceMigrationList
	t.eventually("evacuation", func() (bool, error) {
		err := cluster.Client.List(t.ctx, &migrations, client.InNamespace(t.namespace))
		return len(migrations.Items) > 0, err
	})
	if m := &migrations.Items[0]; len(migrations.Items) == 1 && strings.HasPrefix(m.Name, "kubevirt-evacuation-") &&
		m.Spec.VMIName == "demo" {
		return m
	}
	t.Fatalf("migrations %+v", migrations.Items)
	return nil
}

func (t *test) waitBudget(pods int32) {
	t.Helper()
	t.eventually("budget", func() (bool, error) {
		var budgets policyv1.PodDisruptionBudgetList
		err := cluster.Client.List(t.ctx, &budgets, client.InNamespace(t.namespace))
		if pods == 0 {
			return len(budgets.Items) == 0, err
		}
		return len(budgets.Items) == 1 && budgets.Items[0].Spec.MinAvailable.IntVal == pods, err
	})
}

func TestEvacuation(tt *testing.T) {
	t := newTest(tt)
	if _, err := cluster.CreateNode(t.ctx, "node-drained"); err != nil {
		t.Fatal(err)
	}
	t.createVM(v1.RunStrategyAlways)
	vmi, _ := t.run("node-drained")
	t.quiet()
	t.waitBudget(0)

	before := vmi.DeepCopy()
	vmi.Spec.EvictionStrategy = new(v1.EvictionStrategyLiveMigrate)
	t.must(cluster.Client.Patch(t.ctx, vmi, client.MergeFrom(before)))
	t.waitBudget(1)
	// One that another virt-controller left goes; one that is not the VMI's stays.
	left := disruptioncontroller.Budget(vmi, 2)
	left.Name = "kubevirt-disruption-budget-left"
	t.must(cluster.Client.Create(t.ctx, left))
	t.waitGone(left)
	foreign := disruptioncontroller.Budget(vmi, 2)
	foreign.Name, foreign.OwnerReferences = "kubevirt-disruption-budget-mine", nil
	t.must(cluster.Client.Create(t.ctx, foreign))
	t.quiet()
	t.must(cluster.Client.Delete(t.ctx, foreign))
	t.waitBudget(1)
	t.changeVMI(func(s *v1.VirtualMachineInstanceStatus) {
		s.EvacuationNodeName = "node-drained"
		s.Conditions = append(s.Conditions, v1.VirtualMachineInstanceCondition{
			Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue,
		})
	})
	migration := t.waitEvacuation()
	pod := t.placeTarget(migration, "node01")
	t.waitBudget(2)
	t.quiet()

	// It is taken back, and the migration cancelled: no other is made, until the node gets the taint.
	t.changeVMI(func(s *v1.VirtualMachineInstanceStatus) { s.EvacuationNodeName = "" })
	t.must(cluster.Client.Delete(t.ctx, migration))
	t.endPod(pod)
	t.waitGone(migration)
	t.waitBudget(1)
	t.quiet()
	var migrations v1.VirtualMachineInstanceMigrationList
	t.must(cluster.Client.List(t.ctx, &migrations, client.InNamespace(t.namespace)))
	if len(migrations.Items) != 0 {
		t.Errorf("migrations after it was taken back: %+v", migrations.Items)
	}
	node := &corev1.Node{}
	t.must(cluster.Client.Get(t.ctx, client.ObjectKey{Name: "node-drained"}, node))
	untainted := node.DeepCopy()
	node.Spec.Taints = append(node.Spec.Taints,
		corev1.Taint{Key: "kubevirt.io/drain", Effect: corev1.TaintEffectNoSchedule})
	t.must(cluster.Client.Patch(t.ctx, node, client.MergeFrom(untainted)))
	t.waitEvacuation()
}
