//go:build e2e

package compat

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	clonev1alpha1 "kubevirt.io/api/clone/v1alpha1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"
	"kubevirt.io/client-go/kubecli"
)

// A backup program's work on a VM that runs, by KubeVirt's clients: it freezes the guest and thaws it, takes a snapshot
// and watches it, clones from that by the API's earlier version, puts the VM back while it runs, and cleans up.
func TestSnapshotWhileItRuns(t *testing.T) {
	needSnapshots(t)
	client, ns := connect(t)
	vm := withDisk(t, client, ns)
	mounted(vm)
	vm, err := client.VirtualMachine(ns).Create(t.Context(), vm, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.VirtualMachine(ns).Start(t.Context(), vm.Name, &v1.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the agent to be there", func(ctx context.Context) (bool, any, error) {
		vmi, err := client.VirtualMachineInstance(ns).Get(ctx, vm.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, "there is no instance yet", nil
		}
		return err == nil && slices.ContainsFunc(vmi.Status.Conditions,
			func(c v1.VirtualMachineInstanceCondition) bool {
				return c.Type == v1.VirtualMachineInstanceAgentConnected && c.Status == corev1.ConditionTrue
			}), vmi.Status, err
	})
	until(t, "the guest to have mounted its disk", func(ctx context.Context) (bool, any, error) {
		systems, err := client.VirtualMachineInstance(ns).FilesystemList(ctx, vm.Name)
		if err != nil {
			return false, err.Error(), nil
		}
		return slices.ContainsFunc(systems.Items, func(f v1.VirtualMachineInstanceFileSystem) bool {
			return f.MountPoint == "/"+disk
		}), systems.Items, nil
	})
	if err := client.VirtualMachineInstance(ns).Freeze(t.Context(), vm.Name, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := client.VirtualMachineInstance(ns).Unfreeze(t.Context(), vm.Name); err != nil {
		t.Fatal(err)
	}

	snapshot := watchSnapshot(t, client, vm)
	byAgent := []snapshotv1beta1.Indication{
		snapshotv1beta1.VMSnapshotGuestAgentIndication, snapshotv1beta1.VMSnapshotOnlineSnapshotIndication,
	}
	if said := snapshot.Status.Indications; !slices.Equal(said, byAgent) {
		t.Errorf("the indications are %v, and not %v", said, byAgent)
	}
	cloneOld(t, client, snapshot)

	restore, err := client.VirtualMachineRestore(ns).Create(t.Context(), &snapshotv1beta1.VirtualMachineRestore{
		ObjectMeta: metav1.ObjectMeta{Name: "back"},
		Spec: snapshotv1beta1.VirtualMachineRestoreSpec{
			Target: snapshot.Spec.Source, VirtualMachineSnapshotName: snapshot.Name,
			TargetReadinessPolicy: pointer(snapshotv1beta1.VirtualMachineRestoreStopTarget),
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
	if restores := restore.Status.Restores; len(restores) != 1 || restores[0].VolumeName != disk {
		t.Errorf("the restore names the volumes %+v", restores)
	}

	all := metav1.ListOptions{}
	if err := client.VirtualMachineSnapshot(ns).DeleteCollection(t.Context(), metav1.DeleteOptions{}, all); err != nil {
		t.Fatal(err)
	}
	until(t, "nothing to be left of the snapshot", func(ctx context.Context) (bool, any, error) {
		snapshots, err := client.VirtualMachineSnapshot(ns).List(ctx, all)
		if err != nil {
			return false, nil, err
		}
		cuts, err := client.KubernetesSnapshotClient().SnapshotV1().VolumeSnapshots(ns).List(ctx, all)
		if err != nil {
			return false, nil, err
		}
		return len(snapshots.Items)+len(cuts.Items) == 0, cuts.Items, nil
	})
}

// mounted has a VM's guest put a file system on the claim's disk and mount it, so that its agent has one to freeze.
func mounted(vm *v1.VirtualMachine) {
	spec := &vm.Spec.Template.Spec
	for i := range spec.Domain.Devices.Disks {
		if d := &spec.Domain.Devices.Disks[i]; d.Name == disk {
			d.Serial = disk
		}
	}
	spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks,
		v1.Disk{Name: "init", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}})
	spec.Volumes = append(spec.Volumes, v1.Volume{Name: "init", VolumeSource: v1.VolumeSource{
		CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserData: `#cloud-config
runcmd:
- |
  for d in /sys/block/vd*; do
    [ "$(cat $d/serial)" = ` + disk + ` ] || continue
    mke2fs /dev/${d##*/} && mkdir -p /` + disk + ` && mount /dev/${d##*/} /` + disk + `
  done
`},
	}})
}

// watchSnapshot takes a snapshot of a VM, and watches it until it is ready.
func watchSnapshot(
	t *testing.T, client kubecli.KubevirtClient, vm *v1.VirtualMachine,
) *snapshotv1beta1.VirtualMachineSnapshot {
	t.Helper()
	watcher, err := client.VirtualMachineSnapshot(vm.Namespace).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	if _, err := client.VirtualMachineSnapshot(vm.Namespace).Create(t.Context(),
		&snapshotv1beta1.VirtualMachineSnapshot{
			ObjectMeta: metav1.ObjectMeta{Name: "online"},
			Spec: snapshotv1beta1.VirtualMachineSnapshotSpec{Source: corev1.TypedLocalObjectReference{
				APIGroup: pointer(v1.GroupVersion.Group), Kind: "VirtualMachine", Name: vm.Name,
			}},
		}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var last *snapshotv1beta1.VirtualMachineSnapshotStatus
	deadline := time.After(2 * time.Minute)
	for {
		select {
		case e, open := <-watcher.ResultChan():
			snapshot, is := e.Object.(*snapshotv1beta1.VirtualMachineSnapshot)
			if !open || !is || e.Type == watch.Deleted {
				t.Fatalf("the watch says %+v, after %+v", e, last)
			}
			last = snapshot.Status
			if last != nil && last.ReadyToUse != nil && *last.ReadyToUse {
				return snapshot
			}
		case <-deadline:
			t.Fatalf("the snapshot is not ready: %+v", last)
		}
	}
}

// cloneOld clones from a snapshot by the API's version v1alpha1.
func cloneOld(t *testing.T, client kubecli.KubevirtClient, snapshot *snapshotv1beta1.VirtualMachineSnapshot) {
	t.Helper()
	clones := client.GeneratedKubeVirtClient().CloneV1alpha1().VirtualMachineClones(snapshot.Namespace)
	clone, err := clones.Create(t.Context(), &clonev1alpha1.VirtualMachineClone{
		ObjectMeta: metav1.ObjectMeta{Name: "old"},
		Spec: clonev1alpha1.VirtualMachineCloneSpec{
			Source: &corev1.TypedLocalObjectReference{
				APIGroup: pointer(snapshotv1beta1.SchemeGroupVersion.Group), Kind: "VirtualMachineSnapshot",
				Name: snapshot.Name,
			},
			Target: &corev1.TypedLocalObjectReference{
				APIGroup: pointer(v1.GroupVersion.Group), Kind: "VirtualMachine", Name: "compat-copy",
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the clone to succeed", func(ctx context.Context) (bool, any, error) {
		clone, err = clones.Get(ctx, clone.Name, metav1.GetOptions{})
		return err == nil && clone.Status.Phase == clonev1alpha1.Succeeded, clone.Status, err
	})
	made, err := client.VirtualMachine(snapshot.Namespace).Get(t.Context(), "compat-copy", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if claim := claimOf(made); claim == "" || claim == disk {
		t.Errorf("the copy has the claim %q", claim)
	}
}
