//go:build e2e

package compat

import (
	"context"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"
	"kubevirt.io/client-go/kubecli"
)

const disk = "data"

func needSnapshots(t *testing.T) {
	t.Helper()
	if os.Getenv("VIRTKIT_E2E_STORAGE") == "hostpath" {
		t.Skip("VIRTKIT_E2E_STORAGE=hostpath has no VolumeSnapshots")
	}
}

// withDisk is machine with a claim, whose disk is not in a running guest's way.
func withDisk(t *testing.T, client kubecli.KubevirtClient, ns string) *v1.VirtualMachine {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: disk, Namespace: ns},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")},
			},
		},
	}
	if _, err := client.CoreV1().PersistentVolumeClaims(ns).Create(t.Context(),
		claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	vm := machine(ns)
	spec := &vm.Spec.Template.Spec
	spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks,
		v1.Disk{Name: disk, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}})
	spec.Volumes = append(spec.Volumes, v1.Volume{Name: disk, VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: disk},
		},
	}})
	return vm
}

// Snapshot, restore and clone through KubeVirt's clients: of a stopped VM, for what they do with a guest is
// tests/e2e's.
func TestSnapshotRestoreClone(t *testing.T) {
	needSnapshots(t)
	client, ns := connect(t)
	vm, err := client.VirtualMachine(ns).Create(t.Context(), withDisk(t, client, ns), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	vmKind := corev1.TypedLocalObjectReference{
		APIGroup: pointer(v1.GroupVersion.Group), Kind: "VirtualMachine", Name: vm.Name,
	}

	snapshot, err := client.VirtualMachineSnapshot(ns).Create(t.Context(), &snapshotv1beta1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: "before"}, Spec: snapshotv1beta1.VirtualMachineSnapshotSpec{Source: vmKind},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the snapshot to be ready", func(ctx context.Context) (bool, any, error) {
		snapshot, err = client.VirtualMachineSnapshot(ns).Get(ctx, snapshot.Name, metav1.GetOptions{})
		return err == nil && snapshot.Status != nil && snapshot.Status.ReadyToUse != nil && *snapshot.Status.ReadyToUse,
			snapshot.Status, err
	})
	checkContent(t, client, snapshot)

	restore, err := client.VirtualMachineRestore(ns).Create(t.Context(), &snapshotv1beta1.VirtualMachineRestore{
		ObjectMeta: metav1.ObjectMeta{Name: "back"},
		Spec: snapshotv1beta1.VirtualMachineRestoreSpec{
			Target: vmKind, VirtualMachineSnapshotName: snapshot.Name,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the restore to be complete", func(ctx context.Context) (bool, any, error) {
		restore, err = client.VirtualMachineRestore(ns).Get(ctx, restore.Name, metav1.GetOptions{})
		return err == nil && restore.Status != nil && restore.Status.Complete != nil && *restore.Status.Complete,
			restore.Status, err
	})
	back, err := client.VirtualMachine(ns).Get(t.Context(), vm.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if claim := claimOf(back); claim == "" || claim == disk {
		t.Errorf("the restored VM has the claim %q, and a new one was to be made", claim)
	}

	clone, err := client.VirtualMachineClone(ns).Create(t.Context(), &clonev1beta1.VirtualMachineClone{
		ObjectMeta: metav1.ObjectMeta{Name: "twice"},
		Spec: clonev1beta1.VirtualMachineCloneSpec{Source: &vmKind, Target: &corev1.TypedLocalObjectReference{
			APIGroup: vmKind.APIGroup, Kind: vmKind.Kind, Name: "compat-copy",
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the clone to succeed", func(ctx context.Context) (bool, any, error) {
		clone, err = client.VirtualMachineClone(ns).Get(ctx, clone.Name, metav1.GetOptions{})
		return err == nil && clone.Status.Phase == clonev1beta1.Succeeded, clone.Status, err
	})
	made, err := client.VirtualMachine(ns).Get(t.Context(), "compat-copy", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if claim := claimOf(made); claim == "" || claim == claimOf(back) {
		t.Errorf("the copy has the claim %q, and the VM it is of has %q", claim, claimOf(back))
	}

	if err := client.VirtualMachineSnapshot(ns).Delete(t.Context(), snapshot.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the snapshot's content to be gone", func(ctx context.Context) (bool, any, error) {
		content, err := client.VirtualMachineSnapshotContent(ns).Get(ctx,
			*snapshot.Status.VirtualMachineSnapshotContentName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil, nil
		}
		return false, content.Status, err
	})
}

// checkContent looks at the content of a snapshot: the VM as it was, and a VolumeSnapshot of its claim.
func checkContent(t *testing.T, client kubecli.KubevirtClient, snapshot *snapshotv1beta1.VirtualMachineSnapshot) {
	t.Helper()
	content, err := client.VirtualMachineSnapshotContent(snapshot.Namespace).Get(t.Context(),
		*snapshot.Status.VirtualMachineSnapshotContentName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if vm := content.Spec.Source.VirtualMachine; vm == nil || vm.Name != snapshot.Spec.Source.Name ||
		vm.Labels["team"] != "sea" {
		t.Errorf("the content's VM is %+v", vm)
	}
	backups := content.Spec.VolumeBackups
	if len(backups) != 1 || backups[0].VolumeName != disk || backups[0].VolumeSnapshotName == nil {
		t.Fatalf("the content has the volumes %+v", backups)
	}
	volume, err := client.KubernetesSnapshotClient().SnapshotV1().VolumeSnapshots(snapshot.Namespace).Get(t.Context(),
		*backups[0].VolumeSnapshotName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if volume.Status == nil || volume.Status.ReadyToUse == nil || !*volume.Status.ReadyToUse {
		t.Errorf("the VolumeSnapshot's status is %+v", volume.Status)
	}
}

func claimOf(vm *v1.VirtualMachine) string {
	for _, volume := range vm.Spec.Template.Spec.Volumes {
		if volume.Name == disk && volume.PersistentVolumeClaim != nil {
			return volume.PersistentVolumeClaim.ClaimName
		}
	}
	return ""
}

// until waits until look is done; it returns also what is shown of an object that never is.
func until(t *testing.T, what string, look func(context.Context) (done bool, seen any, err error)) {
	t.Helper()
	var last any
	err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, 2*time.Minute, true,
		func(ctx context.Context) (done bool, err error) {
			done, last, err = look(ctx)
			return done, err
		})
	if err != nil {
		t.Fatalf("wait for %s: %v; %+v", what, err, last)
	}
}

func pointer[T any](v T) *T { return &v }
