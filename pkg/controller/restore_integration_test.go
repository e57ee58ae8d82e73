//go:build integration

package controller

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	volumesnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// definitionsOfCSI are the kinds of the CSI snapshot controller.
func definitionsOfCSI(t *testing.T) (out []*unstructured.Unstructured) {
	t.Helper()
	paths, err := filepath.Glob("../../cmd/virt-local-csi/internal/sidecars/crds/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("definitions %v, %v", paths, err)
	}
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		object := &unstructured.Unstructured{}
		if err := yaml.NewYAMLOrJSONDecoder(file, 4096).Decode(object); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if object.GetKind() == "CustomResourceDefinition" {
			out = append(out, object)
		}
	}
	return out
}

// bind is a CSI driver that gives a claim its volume.
func (t *test) bind(name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	t.eventually("claim "+name, func() (bool, error) {
		err := cluster.Client.Get(t.ctx, t.key(name), claim)
		return err == nil, client.IgnoreNotFound(err)
	})
	claim.Status.Phase = corev1.ClaimBound
	t.must(cluster.Client.Status().Update(t.ctx, claim))
	return claim
}

// TestRestore runs alone: for the others there are no VolumeSnapshots.
func TestRestore(tt *testing.T) {
	t := newSerialTest(tt)
	t.must(cluster.Client.Create(t.ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
		},
	}))
	claim := t.bind("data")
	vm := t.createVM(v1.RunStrategyManual, "data")
	content := &v1beta1.VirtualMachineSnapshotContent{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "content"}}
	content.Spec.VirtualMachineSnapshotName = new("s")
	content.Spec.Source.VirtualMachine = &v1beta1.VirtualMachine{ObjectMeta: vm.ObjectMeta, Spec: *vm.Spec.DeepCopy()}
	content.Spec.Source.VirtualMachine.ManagedFields = nil
	content.Spec.Source.VirtualMachine.Spec.Template.ObjectMeta.Labels["app"] = "before"
	content.Spec.VolumeBackups = []v1beta1.VolumeBackup{{
		VolumeName: "data", VolumeSnapshotName: new("vs"),
		PersistentVolumeClaim: v1beta1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: claim.Spec},
	}}
	t.must(cluster.Client.Create(t.ctx, content))
	content.Status = &v1beta1.VirtualMachineSnapshotContentStatus{ReadyToUse: new(true)}
	t.must(cluster.Client.Status().Update(t.ctx, content))
	snapshot := &v1beta1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "s"},
		Spec: v1beta1.VirtualMachineSnapshotSpec{
			Source: corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: vm.Name},
		},
	}
	t.must(cluster.Client.Create(t.ctx, snapshot))
	snapshot.Status = &v1beta1.VirtualMachineSnapshotStatus{
		Phase: v1beta1.Succeeded, ReadyToUse: new(true), SourceUID: &vm.UID, VirtualMachineSnapshotContentName: new("content"),
	}
	t.must(cluster.Client.Status().Update(t.ctx, snapshot))
	restore := &v1beta1.VirtualMachineRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "r"},
		Spec: v1beta1.VirtualMachineRestoreSpec{
			Target:                     corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: vm.Name},
			VirtualMachineSnapshotName: "s",
		},
	}
	t.must(cluster.Client.Create(t.ctx, restore))

	// Without VolumeSnapshots it says so, and nothing changes.
	t.waitRestore(restore, "no VolumeSnapshots", func(s *v1beta1.VirtualMachineRestoreStatus) bool {
		return reasonOf(s, v1beta1.ConditionReady) == "the cluster has no VolumeSnapshots; install the CSI snapshot controller and its definitions"
	})
	definitions := definitionsOfCSI(tt)
	for _, definition := range definitions {
		t.must(cluster.Client.Create(t.ctx, definition))
	}
	tt.Cleanup(func() {
		for _, definition := range definitions {
			t.must(client.IgnoreNotFound(cluster.Client.Delete(context.Background(), definition)))
		}
	})
	t.waitRestore(restore, "missing volumeSnapshot", func(s *v1beta1.VirtualMachineRestoreStatus) bool {
		return reasonOf(s, v1beta1.ConditionReady) == "missing volumeSnapshot vs"
	})

	// The VolumeSnapshot comes, and is ready; the restored claim is filled from it.
	vs := &unstructured.Unstructured{}
	vs.SetGroupVersionKind(schema.GroupVersionKind{Group: volumesnapshotv1.GroupName, Version: "v1", Kind: "VolumeSnapshot"})
	vs.SetNamespace(t.namespace)
	vs.SetName("vs")
	t.must(unstructured.SetNestedField(vs.Object, "data", "spec", "source", "persistentVolumeClaimName"))
	t.must(cluster.Client.Create(t.ctx, vs))
	t.must(unstructured.SetNestedField(vs.Object, true, "status", "readyToUse"))
	t.must(unstructured.SetNestedField(vs.Object, "2Gi", "status", "restoreSize"))
	t.must(cluster.Client.Status().Update(t.ctx, vs))
	made := t.bind("restore-" + string(restore.UID) + "-data")
	if size := made.Spec.Resources.Requests[corev1.ResourceStorage]; size.String() != "2Gi" || made.Spec.DataSource == nil ||
		made.Spec.DataSource.Name != "vs" || !metav1.IsControlledBy(made, vm) {
		t.Errorf("claim %+v", made)
	}
	t.waitRestore(restore, "complete", func(s *v1beta1.VirtualMachineRestoreStatus) bool {
		return s.Complete != nil && *s.Complete && s.RestoreTime != nil && reasonOf(s, v1beta1.ConditionReady) == "Operation complete"
	})
	after := t.waitVM("released", func(vm *v1.VirtualMachine) bool { return vm.Status.RestoreInProgress == nil })
	if volume := after.Spec.Template.Spec.Volumes[1].PersistentVolumeClaim; volume == nil || volume.ClaimName != made.Name ||
		after.Spec.Template.ObjectMeta.Labels["app"] != "before" || *after.Spec.RunStrategy != v1.RunStrategyManual || after.UID != vm.UID {
		t.Errorf("VM %+v", after.Spec)
	}
	t.must(cluster.Client.Get(t.ctx, t.key("data"), claim)) // It is the user's.
	t.must(cluster.Client.Delete(t.ctx, restore))
	t.waitGone(restore)
	t.quiet()
}

func (t *test) waitRestore(restore *v1beta1.VirtualMachineRestore, what string, is func(*v1beta1.VirtualMachineRestoreStatus) bool) {
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
