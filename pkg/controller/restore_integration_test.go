//go:build integration

package controller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// bind is a CSI driver that gives a claim its volume.
func (t *test) bind(name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	t.eventually("claim "+name, func() (bool, error) {
		err := cluster.Client.Get(t.ctx, t.key(name), claim)
		return err == nil, client.IgnoreNotFound(err)
	})
	t.setBound(claim, nil)
	return claim
}

// setBound writes a claim's status as Kubernetes' volume controller does, whoever else writes the claim meanwhile.
func (t *test) setBound(claim *corev1.PersistentVolumeClaim, capacity corev1.ResourceList) {
	t.Helper()
	before := claim.DeepCopy()
	claim.Status.Phase, claim.Status.Capacity = corev1.ClaimBound, capacity
	t.must(cluster.Client.Status().Patch(t.ctx, claim, client.MergeFrom(before)))
}

// TestRestore runs alone: for the others there are no VolumeSnapshots. It brings a VM that is off back in place.
func TestRestore(tt *testing.T) {
	t := newSerialTest(tt)
	t.storageClass("csi", "csi.example")
	t.installSnapshots()
	t.boundClaim("data", "csi")
	vm := t.createVM(v1.RunStrategyManual, "data")
	snapshot := t.snapshot("s", nil)
	cut := t.volumeSnapshot(snapshot, "data")
	t.cut(cut, "")
	t.waitSnapshot(snapshot, "made", succeeded)
	t.waitVM("unlocked", unlocked)
	before := cut.DeepCopy()
	cut.Status.RestoreSize = new(quantity("2Gi"))
	t.must(cluster.Client.Status().Patch(t.ctx, cut, client.MergeFrom(before)))

	// What was changed since then is taken back.
	t.must(cluster.Client.Get(t.ctx, t.key(vm.Name), vm))
	was := vm.DeepCopy()
	app := vm.Spec.Template.ObjectMeta.Labels["app"]
	vm.Spec.Template.ObjectMeta.Labels["app"] = "after"
	t.must(cluster.Client.Patch(t.ctx, vm, client.MergeFrom(was)))
	restore := &v1beta1.VirtualMachineRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "r"},
		Spec: v1beta1.VirtualMachineRestoreSpec{
			Target: corev1.TypedLocalObjectReference{
				APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: vm.Name,
			},
			VirtualMachineSnapshotName: "s",
		},
	}
	t.must(cluster.Client.Create(t.ctx, restore))
	made := t.bind("restore-" + string(restore.UID) + "-data")
	if size := made.Spec.Resources.Requests[corev1.ResourceStorage]; size.String() != "2Gi" ||
		made.Spec.DataSource == nil ||
		made.Spec.DataSource.Name != cut.Name || !metav1.IsControlledBy(made, vm) {
		t.Errorf("claim %+v", made)
	}
	t.waitRestore(restore, "complete", func(s *v1beta1.VirtualMachineRestoreStatus) bool {
		return s.Complete != nil && *s.Complete && s.RestoreTime != nil &&
			reasonOf(s, v1beta1.ConditionReady) == "Operation complete"
	})
	after := t.waitVM("released", func(vm *v1.VirtualMachine) bool { return vm.Status.RestoreInProgress == nil })
	if volume := after.Spec.Template.Spec.Volumes[1].PersistentVolumeClaim; volume == nil ||
		volume.ClaimName != made.Name ||
		after.Spec.Template.ObjectMeta.Labels["app"] != app || *after.Spec.RunStrategy != v1.RunStrategyManual ||
		after.UID != vm.UID {
		t.Errorf("VM %+v", after.Spec)
	}
	t.must(cluster.Client.Get(t.ctx, t.key("data"), &corev1.PersistentVolumeClaim{})) // It is the user's.
	t.must(cluster.Client.Delete(t.ctx, restore))
	t.waitGone(restore)
	t.quiet()

	// A restore that keeps what it replaces is taken back by another.
	keep := t.restore("keep", "s", map[string]string{snapshots.KeepAnnotation: "true"})
	kept := t.bind("restore-" + string(keep.UID) + "-data")
	t.waitRestore(keep, "complete", complete)
	t.waitLabel(made.Name, "keep")
	t.must(cluster.Client.Get(t.ctx, t.key(vm.Name), after))
	if claim := after.Spec.Template.Spec.Volumes[1].PersistentVolumeClaim.ClaimName; claim != kept.Name {
		t.Errorf("the VM has claim %s", claim)
	}
	back := t.restore("back", "s", map[string]string{snapshots.UndoAnnotation: "keep"})
	t.waitRestore(back, "complete", complete)
	t.waitLabel(kept.Name, "back")
	t.waitLabel(made.Name, "")
	after = t.waitVM("released", func(vm *v1.VirtualMachine) bool { return vm.Status.RestoreInProgress == nil })
	if claim := after.Spec.Template.Spec.Volumes[1].PersistentVolumeClaim.ClaimName; claim != made.Name ||
		*after.Spec.RunStrategy != v1.RunStrategyManual {
		t.Errorf("taken back, the VM is %+v", after.Spec)
	}
	t.quiet()

	// What is not the last one is not taken back, and says so; deleted, it lets the VM go.
	late := t.restore("late", "s", map[string]string{snapshots.UndoAnnotation: "keep"})
	t.waitRestore(late, "refused", func(s *v1beta1.VirtualMachineRestoreStatus) bool {
		return strings.HasPrefix(reasonOf(s, v1beta1.ConditionReady), "restore keep is not the last one of VM demo")
	})
	t.must(cluster.Client.Delete(t.ctx, late))
	t.waitGone(late)
	t.must(cluster.Client.Get(t.ctx, t.key(kept.Name), kept)) // It is kept until its user deletes it.
}

func complete(s *v1beta1.VirtualMachineRestoreStatus) bool { return s.Complete != nil && *s.Complete }

// restore makes a restore of the VM.
func (t *test) restore(name, snapshot string, annotations map[string]string) *v1beta1.VirtualMachineRestore {
	t.Helper()
	out := &v1beta1.VirtualMachineRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: name, Annotations: annotations},
		Spec: v1beta1.VirtualMachineRestoreSpec{
			Target: corev1.TypedLocalObjectReference{
				APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: "demo",
			},
			VirtualMachineSnapshotName: snapshot,
		},
	}
	t.must(cluster.Client.Create(t.ctx, out))
	return out
}

// waitLabel waits until a claim says which restore has replaced it; empty is none.
func (t *test) waitLabel(claim, restore string) {
	t.Helper()
	out := &corev1.PersistentVolumeClaim{}
	t.eventually("label "+restore+" of "+claim, func() (bool, error) {
		err := cluster.Client.Get(t.ctx, t.key(claim), out)
		return err == nil && out.Labels[snapshots.KeptLabel] == restore, err
	})
}

func (t *test) waitRestore(restore *v1beta1.VirtualMachineRestore, what string,
	is func(*v1beta1.VirtualMachineRestoreStatus) bool,
) {
	t.Helper()
	t.eventually("restore: "+what, func() (bool, error) {
		err := cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(restore), restore)
		return err == nil && restore.Status != nil && is(restore.Status), err
	})
}

func reasonOf(s *v1beta1.VirtualMachineRestoreStatus, of v1beta1.ConditionType) string {
	for _, c := range s.Conditions {
		if c.Type == of {
			return c.Reason
		}
	}
	return ""
}
