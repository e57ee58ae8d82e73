//go:build integration

package controller

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/tests/env"
)

func (t *test) createMigration(name string) *v1.VirtualMachineInstanceMigration {
	t.Helper()
	migration := &v1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: name},
		Spec:       v1.VirtualMachineInstanceMigrationSpec{VMIName: "demo"},
	}
	t.must(cluster.Client.Create(t.ctx, migration))
	return migration
}

func (t *test) waitMigration(migration *v1.VirtualMachineInstanceMigration,
	want v1.VirtualMachineInstanceMigrationPhase,
) {
	t.Helper()
	t.eventually("migration "+migration.Name+": "+string(want), func() (bool, error) {
		err := cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(migration), migration)
		return err == nil && migration.Status.Phase == want, err
	})
}

// placeTarget waits for a migration's pod and binds it.
func (t *test) placeTarget(migration *v1.VirtualMachineInstanceMigration, node string) *corev1.Pod {
	t.Helper()
	t.waitMigration(migration, v1.MigrationScheduling)
	var pods corev1.PodList
	t.eventually("target pod", func() (bool, error) {
		err := cluster.Client.List(t.ctx, &pods, client.InNamespace(t.namespace),
			client.MatchingLabels{v1.MigrationJobLabel: string(migration.UID)})
		return len(pods.Items) == 1, err
	})
	t.must(cluster.Bind(t.ctx, &pods.Items[0], node))
	t.waitMigration(migration, v1.MigrationPreparingTarget)
	return &pods.Items[0]
}

// endMigrations fails what a test leaves under way: it would count against the limits of the tests beside it.
func (t *test) endMigrations() {
	ctx := context.WithoutCancel(t.ctx)
	err := env.Eventually(ctx, func(ctx context.Context) (bool, error) {
		var left v1.VirtualMachineInstanceMigrationList
		if err := cluster.Client.List(ctx, &left, client.InNamespace(t.namespace)); err != nil {
			return false, err
		}
		done := true
		for i := range left.Items {
			migration := &left.Items[i]
			if migration.IsFinal() {
				continue
			}
			done = false
			before := migration.DeepCopy()
			migration.Status.Phase = v1.MigrationFailed
			if err := cluster.Client.Status().Patch(ctx, migration,
				client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
				return false, err
			}
		}
		return done, nil
	})
	if err != nil {
		t.Errorf("end the migrations that are left: %v", err)
	}
}

// changeVMI writes the VMI's status as virt-handler does.
func (t *test) changeVMI(change func(*v1.VirtualMachineInstanceStatus)) {
	t.Helper()
	t.eventually("status written", func() (bool, error) {
		vmi := &v1.VirtualMachineInstance{}
		if err := cluster.Client.Get(t.ctx, t.key("demo"), vmi); err != nil {
			return false, err
		}
		before := vmi.DeepCopy()
		change(&vmi.Status)
		return cluster.Client.Status().Patch(t.ctx, vmi,
			client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})) == nil, nil
	})
}

// The test plays the scheduler and both nodes.
func TestMigration(tt *testing.T) {
	t := newTest(tt)
	if _, err := cluster.CreateNode(t.ctx, "node-away"); err != nil {
		t.Fatal(err)
	}
	t.createVM(v1.RunStrategyAlways)
	t.run("node01")

	there := t.createMigration("there")
	target := t.placeTarget(there, "node-away")
	vmi := t.waitVMI("shown to the target", func(vmi *v1.VirtualMachineInstance) bool {
		return vmi.Labels[v1.MigrationTargetNodeNameLabel] == "node-away" &&
			vmi.Status.ActivePods[target.UID] == "node-away"
	})
	if ms := vmi.Status.MigrationState; ms == nil || ms.SourceNode != "node01" || ms.TargetPod != target.Name ||
		ms.SourcePod == "" {
		t.Errorf("migrationState %+v", ms)
	}
	second := t.createMigration("second")
	t.waitMigration(second, v1.MigrationPending)
	t.changeVMI(func(s *v1.VirtualMachineInstanceStatus) { s.MigrationState.TargetNodeAddress = "10.0.0.2" })
	t.waitMigration(there, v1.MigrationTargetReady)
	t.changeVMI(func(s *v1.VirtualMachineInstanceStatus) {
		s.MigrationState.StartTimestamp = &metav1.Time{Time: vmi.CreationTimestamp.Time}
	})
	t.waitMigration(there, v1.MigrationRunning)
	t.waitPrintable(v1.VirtualMachineStatusMigrating)
	t.changeVMI(func(s *v1.VirtualMachineInstanceStatus) {
		s.MigrationState.EndTimestamp, s.MigrationState.Completed = s.MigrationState.StartTimestamp, true
		s.NodeName = "node-away"
		for uid := range s.ActivePods {
			if uid != target.UID {
				s.ActivePods[uid] = "" // the guest has left it
			}
		}
	})
	t.waitMigration(there, v1.MigrationSucceeded)
	t.waitPrintable(v1.VirtualMachineStatusRunning)
	t.waitVMI("labelled", func(vmi *v1.VirtualMachineInstance) bool {
		return vmi.Labels[v1.NodeNameLabel] == "node-away"
	})
	if there.Labels[v1.MigrationSelectorLabel] != "demo" {
		t.Errorf("labels %v", there.Labels)
	}

	// The one that waited goes next, and is cancelled before the guest has begun to move.
	pod := t.placeTarget(second, "node01")
	t.must(cluster.Client.Delete(t.ctx, second))
	t.endPod(pod)
	t.waitGone(second)
	vmi = t.waitVMI("told", func(vmi *v1.VirtualMachineInstance) bool {
		return vmi.Status.MigrationState.AbortStatus == v1.MigrationAbortSucceeded &&
			vmi.Labels[v1.MigrationTargetNodeNameLabel] == ""
	})
	if _, active := vmi.Status.ActivePods[pod.UID]; active || vmi.Status.NodeName != "node-away" {
		t.Errorf("status %+v", vmi.Status)
	}
	t.quiet()
}
