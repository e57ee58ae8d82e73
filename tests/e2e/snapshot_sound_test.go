//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	snapshotsv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// sound checks what holds after each case: the guest writes, if it is to run; nothing is left that nobody names; status
// is true; and what is ready is of one instant.
func (h *hardy) sound(t *testing.T, runs bool) {
	t.Helper()
	if runs {
		h.goesOn(t)
	}
	eventually(t, 30*time.Second, "nothing is in progress, and nothing is left", func() string {
		vm := h.vm(t)
		switch {
		case vm.Status.SnapshotInProgress != nil:
			return "snapshotInProgress is " + *vm.Status.SnapshotInProgress
		case vm.Status.RestoreInProgress != nil:
			return "restoreInProgress is " + *vm.Status.RestoreInProgress
		case slices.Contains(vm.Finalizers, "snapshot.kubevirt.io/snapshot-source-protection"):
			return "the VM has the finalizer of a snapshot"
		}
		if left := h.pluggedMemory(t); left != "" {
			return left
		}
		return h.leaks(t, vm)
	})
	for _, snapshot := range h.snapshots(t) {
		h.truthful(t, &snapshot)
	}
}

// goesOn checks that the guest runs, is not frozen, and writes to all disks. It asks neither the guest nor its agent.
func (h *hardy) goesOn(t *testing.T) {
	t.Helper()
	eventually(t, bootTime, "the guest runs", func() string {
		vmi := h.vmi(t)
		if vmi == nil || vmi.Status.Phase != v1.Running {
			return "it does not"
		}
		if vmi.Status.FSFreezeStatus != "" {
			return "it is " + vmi.Status.FSFreezeStatus
		}
		for _, c := range vmi.Status.Conditions {
			if c.Type == v1.VirtualMachineInstancePaused && c.Status == corev1.ConditionTrue {
				return "it is paused"
			}
		}
		if all := h.everywhere(t); len(all) != 1 {
			return fmt.Sprintf("QEMU of this VM: %v", all)
		}
		return ""
	})
	h.writes(t)
}

// writes checks that the guest writes to all disks, by the disks alone.
func (h *hardy) writes(t *testing.T) {
	t.Helper()
	var before []int
	eventually(t, bootTime, "the guest writes", func() string {
		now, err := h.disks(t)
		switch {
		case err != nil:
			return err.Error()
		case before == nil:
			before = now
		case !slices.ContainsFunc(now, func(n int) bool { return n <= slices.Max(before) }):
			return ""
		}
		return fmt.Sprint("the disks have ", now, ", and had ", before)
	})
}

// snapshots are those of the namespace.
func (h *hardy) snapshots(t *testing.T) []snapshotv1beta1.VirtualMachineSnapshot {
	t.Helper()
	var list snapshotv1beta1.VirtualMachineSnapshotList
	if err := h.Client.List(t.Context(), &list, client.InNamespace(h.ns)); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// leaks returns what is there although no live object names it.
func (h *hardy) leaks(t *testing.T, vm *v1.VirtualMachine) string {
	t.Helper()
	named := map[string]bool{}
	for name := range h.before {
		named["claim "+name] = true
	}
	for _, volume := range vm.Spec.Template.Spec.Volumes {
		if volume.PersistentVolumeClaim != nil {
			named["claim "+volume.PersistentVolumeClaim.ClaimName] = true
		}
	}
	contents := map[string]bool{}
	for _, snapshot := range h.snapshots(t) {
		contents["vmsnapshot-content-"+string(snapshot.UID)] = snapshot.DeletionTimestamp == nil
	}
	var made snapshotv1beta1.VirtualMachineSnapshotContentList
	var cuts snapshotsv1.VolumeSnapshotList
	var cutContents snapshotsv1.VolumeSnapshotContentList
	var claims corev1.PersistentVolumeClaimList
	for _, list := range []client.ObjectList{&made, &cuts, &claims} {
		if err := h.Client.List(t.Context(), list, client.InNamespace(h.ns)); err != nil {
			return err.Error()
		}
	}
	if err := h.Client.List(t.Context(), &cutContents); err != nil {
		return err.Error()
	}
	for _, content := range made.Items {
		if !contents[content.Name] {
			return "content " + content.Name
		}
		if content.Annotations[savedmemory.IncludeAnnotation] == "true" {
			named["claim "+savedmemory.Volume(content.UID)] = true
		}
		for _, backup := range content.Spec.VolumeBackups {
			named["VolumeSnapshot "+*backup.VolumeSnapshotName] = true
		}
	}
	for _, cut := range cuts.Items {
		if !named["VolumeSnapshot "+cut.Name] {
			return "VolumeSnapshot " + cut.Name
		}
		if cut.Status != nil && cut.Status.BoundVolumeSnapshotContentName != nil {
			named["VolumeSnapshotContent "+*cut.Status.BoundVolumeSnapshotContentName] = true
		}
	}
	for _, content := range cutContents.Items {
		if content.Spec.VolumeSnapshotRef.Namespace == h.ns && !named["VolumeSnapshotContent "+content.Name] {
			return "VolumeSnapshotContent " + content.Name
		}
	}
	for _, claim := range claims.Items {
		if !named["claim "+claim.Name] {
			return "claim " + claim.Name
		}
	}
	return ""
}

// truthful checks what a snapshot that is over says of itself.
func (h *hardy) truthful(t *testing.T, snapshot *snapshotv1beta1.VirtualMachineSnapshot) {
	t.Helper()
	status := snapshot.Status
	conditions := map[snapshotv1beta1.ConditionType]corev1.ConditionStatus{}
	for _, c := range status.Conditions {
		conditions[c.Type] = c.Status
	}
	ready := status.ReadyToUse != nil && *status.ReadyToUse
	switch {
	case conditions[snapshotv1beta1.ConditionProgressing] != corev1.ConditionFalse:
		t.Errorf("%s is over and progresses: %+v", snapshot.Name, status.Conditions)
	case ready != (conditions[snapshotv1beta1.ConditionReady] == corev1.ConditionTrue),
		ready != (status.Phase == snapshotv1beta1.Succeeded),
		ready == (conditions[snapshotv1beta1.ConditionFailure] == corev1.ConditionTrue):
		t.Errorf("%s contradicts itself: ready %t, phase %s, %+v", snapshot.Name, ready, status.Phase,
			status.Conditions)
	case ready && status.Error != nil:
		t.Errorf("%s is ready, and has the error %q", snapshot.Name, *status.Error.Message)
	}
	if !ready {
		return
	}
	numbers, err := h.cut(t, snapshot)
	if err != nil {
		t.Errorf("%s: %v", snapshot.Name, err)
		return
	}
	if snapshots.WantsMemory(snapshot) {
		h.wholeMemory(t, snapshot)
	}
	said := indications(snapshot)
	t.Logf("%s has %v, %v", snapshot.Name, numbers, said)
	if !slices.Contains(said, snapshotv1beta1.VMSnapshotQuiesceTimeoutIndication) {
		oneInstant(t, numbers)
	}
}

// disks are the numbers on the VM's disks as they are now.
func (h *hardy) disks(t *testing.T) ([]int, error) {
	t.Helper()
	var images []string
	for _, disk := range written {
		for _, volume := range h.vm(t).Spec.Template.Spec.Volumes {
			if volume.Name != disk {
				continue
			}
			claim, err := h.Kube.CoreV1().PersistentVolumeClaims(h.ns).
				Get(t.Context(), volume.PersistentVolumeClaim.ClaimName, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			images = append(images, filepath.Join("volumes", claim.Spec.VolumeName))
		}
	}
	return h.read(t, images)
}

// cut are the numbers that a snapshot has.
func (h *hardy) cut(t *testing.T, snapshot *snapshotv1beta1.VirtualMachineSnapshot) ([]int, error) {
	t.Helper()
	var images []string
	for _, disk := range written {
		var of snapshotsv1.VolumeSnapshot
		key := client.ObjectKey{Namespace: h.ns, Name: fmt.Sprintf("vmsnapshot-%s-volume-%s", snapshot.UID, disk)}
		if err := h.Client.Get(t.Context(), key, &of); err != nil {
			return nil, err
		}
		if of.Status == nil || of.Status.BoundVolumeSnapshotContentName == nil {
			return nil, fmt.Errorf("VolumeSnapshot %s is not bound", of.Name)
		}
		var content snapshotsv1.VolumeSnapshotContent
		if err := h.Client.Get(t.Context(), client.ObjectKey{Name: *of.Status.BoundVolumeSnapshotContentName},
			&content); err != nil {
			return nil, err
		}
		if content.Status == nil || content.Status.SnapshotHandle == nil {
			return nil, fmt.Errorf("VolumeSnapshotContent %s has no handle", content.Name)
		}
		images = append(images, filepath.Join("snapshots", *content.Status.SnapshotHandle))
	}
	return h.read(t, images)
}

// read reads the numbers of images of virt-local's pool, which the guest has formatted.
func (h *hardy) read(t *testing.T, images []string) (numbers []int, err error) {
	t.Helper()
	for _, image := range images {
		path := filepath.Join(h.pool(t), image, "image")
		if _, err := os.Stat(path); err != nil {
			return nil, err
		}
		out, err := exec.CommandContext(t.Context(), "debugfs", "-R", "cat /n", path).Output()
		if err != nil {
			return nil, fmt.Errorf("debugfs: %w", err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(out)))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", image, err)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// pool is the directory of virt-local's CSI driver, which only its processes have mounted.
func (h *hardy) pool(t *testing.T) string {
	t.Helper()
	if h.poolDir != "" {
		if _, err := os.Stat(h.poolDir); err == nil {
			return h.poolDir
		}
	}
	status, err := h.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.poolDir = filepath.Join("/proc", strconv.Itoa(status.PID("csi-controller", "")), "root", status.StateDir, "csi",
		"pool")
	return h.poolDir
}
