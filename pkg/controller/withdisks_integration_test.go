//go:build integration

package controller

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// TestWithDisks kills virt-controller after each write of a migration that brings its disk: one that is cancelled,
// after which all is as it was, and one that succeeds. The test plays the nodes and the scheduler.
func TestWithDisks(tt *testing.T) {
	t := newSerialTest(tt)
	t.Cleanup(func() {
		if writes.killed() { // which leaves the other tests none
			t.restart(func() { writes.killAfter("") })
		}
	})
	t.deployComponents() // no disk is copied while they are rolled out
	_, err := cluster.CreateNode(t.ctx, "node-disks")
	t.must(err)
	t.boundClaim("old", "csi")
	t.runOnClaim()
	vm, vmi := "/virtualmachines/demo 200", "/virtualmachineinstances/demo 200"

	creates := "POST /api/v1/namespaces/" + t.namespace + "/persistentvolumeclaims 201"
	says := "PATCH " + t.path("/virtualmachineinstancemigrations/first/status")
	writes.killAfter(says)
	first := t.withDisks("first")
	t.killed(creates)
	t.killed(says)
	t.killed("PATCH " + t.path(vm))
	t.killed("PATCH " + t.path(vmi))
	t.killed("PATCH " + t.path("/virtualmachineinstances/demo/status 200"))
	t.killed("POST /api/v1/namespaces/" + t.namespace + "/pods 201")
	t.killed("")
	target := t.placeTarget(first, "node-disks")
	if !mountsClaim(target, "old-m1") || mountsClaim(target, "old") {
		t.Errorf("the target has volumes %+v", target.Spec.Volumes)
	}
	t.waitNamed("old-m1", true)
	want := []volumemigration.Copied{{Volume: "old", From: "old", To: "old-m1"}}
	if got := volumemigration.CopiedBy(first); !slices.Equal(got, want) {
		t.Errorf("it says that it copies %+v", got)
	}
	t.noSecond()

	// Somebody who may change claims and not delete them says of two that the migration has made them.
	claimed := []string{"foreign", "old-m9"}
	for _, name := range claimed {
		t.boundClaim(name, "csi")
		t.label(name, map[string]string{
			volumemigration.CopiedByLabel: string(first.UID), volumemigration.CopiedVolumeLabel: "old",
		})
	}
	writes.killAfter("PATCH " + t.path(vm))
	t.must(cluster.Client.Delete(t.ctx, first))
	t.killed("DELETE /api/v1/namespaces/" + t.namespace + "/persistentvolumeclaims/old-m1 200")
	t.endPod(target)
	t.killed("")
	t.waitGone(first)
	t.waitNamed("old", false)
	t.waitVMI("is as it was", func(vmi *v1.VirtualMachineInstance) bool { return !volumemigration.Pending(vmi) })
	t.noSecond()
	if made := t.made(); !slices.Equal(made, claimed) {
		t.Errorf("claims are left: %v", made)
	}
	for _, name := range claimed {
		t.label(name, map[string]string{volumemigration.CopiedByLabel: "", volumemigration.CopiedVolumeLabel: ""})
	}

	// What is deleted stays, since nobody here lets it go; its name is taken.
	second := t.withDisks("second")
	target = t.placeTarget(second, "node-disks")
	t.waitNamed("old-m2", true)
	t.changeVMI(func(s *v1.VirtualMachineInstanceStatus) { s.MigrationState.TargetNodeAddress = "10.0.0.2" })
	t.waitMigration(second, v1.MigrationTargetReady)
	writes.killAfter("PATCH " + t.path(vm))
	t.changeVMI(func(s *v1.VirtualMachineInstanceStatus) {
		s.MigrationState.StartTimestamp = &second.CreationTimestamp
		s.MigrationState.EndTimestamp, s.MigrationState.Completed = s.MigrationState.StartTimestamp, true
		s.NodeName = "node-disks"
		for uid := range s.ActivePods {
			if uid != target.UID {
				s.ActivePods[uid] = ""
			}
		}
		volumemigration.Land(s)
	})
	t.killed("")
	t.waitMigration(second, v1.MigrationSucceeded)
	t.waitNamed("old-m2", false)
	t.eventually("the migration is let go", func() (bool, error) {
		err := cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(second), second)
		return len(second.Finalizers) == 0, err
	})
	if made := t.made(); !slices.Equal(made, []string{"old-m2"}) {
		t.Errorf("claims: %v", made)
	}
	t.quiet()

	// The StorageClass of its claim has it moved with its disk when it is evicted.
	t.storageClass("csi", "csi.example")
	t.classSays("csi", "true")
	t.waitVMI("has opted in", volumemigration.OptedIn)
	t.classSays("csi", "false")
	t.waitVMI("has not", func(vmi *v1.VirtualMachineInstance) bool { return !volumemigration.OptedIn(vmi) })

	// It is cancelled while virt-controller is away, who has made a claim and not said so.
	writes.killAfter(creates)
	fourth := t.withDisks("fourth")
	t.eventually("virt-controller is killed", func() (bool, error) { return writes.killed(), nil })
	if made := t.made(); !slices.Equal(made, []string{"old-m2", "old-m3"}) {
		t.Errorf("claims: %v", made)
	}
	t.must(cluster.Client.Delete(t.ctx, fourth))
	t.killed("")
	t.waitGone(fourth)
	if made := t.made(); !slices.Equal(made, []string{"old-m2"}) {
		t.Errorf("claims: %v", made)
	}

	// A quota refuses the claim: the migration fails, and nothing was changed.
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "full"}}
	quota.Spec.Hard = corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: quantity("1")}
	t.must(cluster.Client.Create(t.ctx, quota))
	quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, quota.Spec.Hard
	t.must(cluster.Client.Status().Update(t.ctx, quota))
	third := t.withDisks("third")
	t.waitMigration(third, v1.MigrationFailed)
	if got := third.Status.MigrationState.FailureReason; !strings.Contains(got, "exceeded quota: full") {
		t.Errorf("it failed: %s", got)
	}
	t.waitNamed("old-m2", false)
	t.quiet()
}

// path returns the end of a path below a namespace's objects of KubeVirt's kinds.
func (t *test) path(end string) string { return "/apis/kubevirt.io/v1/namespaces/" + t.namespace + end }

// killed waits until virt-controller is killed, and starts another, which next is to kill. Other controllers' writes
// may be on their way when it is: where next is one of them, nothing kills the other virt-controller.
func (t *test) killed(next string) {
	t.Helper()
	t.eventually("virt-controller is killed", func() (bool, error) { return writes.killed() || !writes.armed(), nil })
	t.restart(func() {
		if next != "" && writes.wrote(next) {
			next = ""
		}
		writes.killAfter(next)
	})
}

// restart ends virt-controller, so that nothing of it is on its way, and starts another.
func (t *test) restart(between func()) {
	t.Helper()
	if err := stopController(); err != nil {
		t.Logf("virt-controller ended: %v", err)
	}
	between()
	stopController = startController(context.WithoutCancel(t.ctx))
}

func (t *test) withDisks(name string) *v1.VirtualMachineInstanceMigration {
	t.Helper()
	m := &v1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: t.namespace, Name: name,
			Annotations: map[string]string{volumemigration.WithDisksAnnotation: "true"},
		},
		Spec: v1.VirtualMachineInstanceMigrationSpec{VMIName: "demo"},
	}
	t.must(cluster.Client.Create(t.ctx, m))
	return m
}

// waitNamed waits until the VM names a claim, and remembers others, or not.
func (t *test) waitNamed(claim string, recorded bool) {
	t.Helper()
	t.waitVM("names claim "+claim, func(vm *v1.VirtualMachine) bool {
		v := hotplug.Volume(&vm.Spec.Template.Spec, "old")
		return claims.Name(v) == claim && (volumemigration.RecordOf(vm) != nil) == recorded
	})
}

// noSecond expects no migration that somebody made for the disks.
func (t *test) noSecond() {
	t.Helper()
	var list v1.VirtualMachineInstanceMigrationList
	t.must(cluster.Client.List(t.ctx, &list, client.InNamespace(t.namespace),
		client.MatchingLabels{v1.VolumesUpdateMigration: "demo"}))
	if len(list.Items) > 0 {
		t.Errorf("migration %s is made, too", list.Items[0].Name)
	}
}

// classSays has a StorageClass say whether guests on its claims are moved with their disks when they are evicted.
func (t *test) classSays(name, value string) {
	t.Helper()
	class := &storagev1.StorageClass{}
	t.must(cluster.Client.Get(t.ctx, client.ObjectKey{Name: name}, class))
	before := class.DeepCopy()
	metav1.SetMetaDataAnnotation(&class.ObjectMeta, volumemigration.OptInAnnotation, value)
	t.must(cluster.Client.Patch(t.ctx, class, client.MergeFrom(before)))
}

// label changes labels of a claim; "" removes one.
func (t *test) label(name string, labels map[string]string) {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	t.must(cluster.Client.Get(t.ctx, t.key(name), claim))
	before := claim.DeepCopy()
	for key, value := range labels {
		if value == "" {
			delete(claim.Labels, key)
		} else {
			metav1.SetMetaDataLabel(&claim.ObjectMeta, key, value)
		}
	}
	t.must(cluster.Client.Patch(t.ctx, claim, client.MergeFrom(before)))
}

// made returns the claims that say that they were made for migrations, and are not deleted.
func (t *test) made() []string {
	t.Helper()
	var list corev1.PersistentVolumeClaimList
	t.must(cluster.Client.List(t.ctx, &list, client.InNamespace(t.namespace),
		client.HasLabels{volumemigration.CopiedByLabel}))
	var out []string
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			out = append(out, list.Items[i].Name)
		}
	}
	return out
}
