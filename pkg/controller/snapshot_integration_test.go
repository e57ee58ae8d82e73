//go:build integration

package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// guests stand in for virt-api's freeze and unfreeze.
var guests = &fakeGuests{}

type fakeGuests struct {
	mu       sync.Mutex
	quiesced snapshots.Quiesced
	frozen   map[types.NamespacedName]bool
}

func (g *fakeGuests) Freeze(_ context.Context, vmi types.NamespacedName, _ time.Duration) (snapshots.Quiesced, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.quiesced == "" {
		return "", errors.New("no guest is to be frozen")
	}
	if g.frozen == nil {
		g.frozen = map[types.NamespacedName]bool{}
	}
	g.frozen[vmi] = true
	return g.quiesced, nil
}

func (g *fakeGuests) Unfreeze(_ context.Context, vmi types.NamespacedName) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.frozen, vmi)
	return nil
}

func (g *fakeGuests) become(quiesced snapshots.Quiesced) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.quiesced = quiesced
}

func (g *fakeGuests) isFrozen(vmi types.NamespacedName) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.frozen[vmi]
}

// TestSnapshots runs alone: for the others there are no VolumeSnapshots.
func TestSnapshots(tt *testing.T) {
	t := newSerialTest(tt)
	t.storageClass("csi", "csi.example")
	t.storageClass("local", "local.example")
	t.boundClaim("a", "csi")
	t.boundClaim("b", "csi")
	t.boundClaim("c", "local")
	t.createVM(v1.RunStrategyAlways, "a", "b", "c")
	vmi, pod := t.run("node01")
	t.waitVM("nothing can be snapshotted", func(vm *v1.VirtualMachine) bool {
		return len(vm.Status.VolumeSnapshotStatuses) == 4 && !vm.Status.VolumeSnapshotStatuses[1].Enabled
	})

	// Without CSI's kinds a snapshot waits, and says for what.
	first := t.snapshot("first", nil)
	t.waitSnapshot(first, "waiting for the kinds", func(s *v1beta1.VirtualMachineSnapshotStatus) bool {
		return s.Phase == v1beta1.InProgress && strings.Contains(progressing(s), "has no VolumeSnapshots")
	})
	guests.become(snapshots.QuiescedAgent)
	tt.Cleanup(func() { guests.become("") })
	t.installSnapshots()

	// With them it begins: the guest is frozen until all are cut.
	key := client.ObjectKeyFromObject(vmi)
	a, b := t.volumeSnapshot(first, "a"), t.volumeSnapshot(first, "b")
	if !guests.isFrozen(key) || *a.Spec.VolumeSnapshotClassName != "snap" ||
		*a.Spec.Source.PersistentVolumeClaimName != "a" {
		t.Errorf("frozen %t, VolumeSnapshot %+v", guests.isFrozen(key), a.Spec)
	}
	vm := t.waitVM("locked", func(vm *v1.VirtualMachine) bool {
		return snapshots.Locked(vm, "first") && vm.Status.VolumeSnapshotStatuses[1].Enabled &&
			!vm.Status.VolumeSnapshotStatuses[3].Enabled
	})
	second := t.snapshot("second", nil)
	t.waitSnapshot(second, "waiting for the first", func(s *v1beta1.VirtualMachineSnapshotStatus) bool {
		return strings.Contains(progressing(s), `snapshot "first" in progress`)
	})
	t.cut(a, "")
	t.quiet()
	if !guests.isFrozen(key) {
		t.Error("thawed before all are cut")
	}
	t.cut(b, "")
	done := t.waitSnapshot(first, "made", succeeded)
	var free v1.VirtualMachine
	t.must(cluster.Client.Get(t.ctx, key, &free))
	if by := free.Status.SnapshotInProgress; by != nil && *by == "first" {
		t.Error("the VM is locked by a snapshot that has succeeded")
	}
	if indications(done) != "[GuestAgent Online PartialSnapshot]" ||
		fmt.Sprint(*done.Status.SnapshotVolumes) != "{[a b] [root c]}" || !snapshots.Ready(done) ||
		!strings.Contains(done.Status.SourceIndications[2].Message, "c (No VolumeSnapshotClass") {
		t.Errorf("status %+v, %+v", done.Status, done.Status.SnapshotVolumes)
	}
	kept := t.waitContent(first, "there", func(*v1beta1.VirtualMachineSnapshotContent) bool { return true })
	if kept.Spec.Source.VirtualMachine.Name != "demo" || len(kept.Spec.VolumeBackups) != 2 ||
		kept.Spec.VolumeBackups[0].PersistentVolumeClaim.Labels["kept"] != "yes" {
		t.Errorf("content %+v", kept.Spec)
	}

	// The second begins as soon as the first is over. The agent is gone, and one of its VolumeSnapshots fails.
	a, b = t.volumeSnapshot(second, "a"), t.volumeSnapshot(second, "b")
	t.cut(a, "")
	t.cut(b, "no space left")
	t.waitSnapshot(second, "in error", func(s *v1beta1.VirtualMachineSnapshotStatus) bool {
		return s.Error != nil && strings.Contains(*s.Error.Message, "no space left") &&
			progressing(s) == "In error state"
	})
	t.waitThawed(key)
	t.quiet()

	// Deleted amid, it leaves nothing.
	t.must(cluster.Client.Delete(t.ctx, second))
	t.waitGone(second)
	t.waitVM("unlocked", unlocked)
	if err := cluster.Client.Get(t.ctx, t.key(snapshots.ContentName(second)),
		&v1beta1.VirtualMachineSnapshotContent{}); !apierrors.IsNotFound(err) {
		t.Errorf("the content is there: %v", err)
	}

	// Without an agent the guest is paused. Its deadline passes.
	guests.become(snapshots.QuiescedPaused)
	third := t.snapshot("third", &metav1.Duration{Duration: 15 * time.Second})
	t.volumeSnapshot(third, "a")
	failed := t.waitSnapshot(third, "failed", func(s *v1beta1.VirtualMachineSnapshotStatus) bool {
		return s.Phase == v1beta1.Failed
	})
	if indications(failed) != "[NoGuestAgent Online PartialSnapshot Paused QuiesceTimeout]" ||
		progressing(failed.Status) != "Operation failed" {
		t.Errorf("status %+v", failed.Status)
	}
	t.waitThawed(key)
	t.waitVM("unlocked", unlocked)
	t.quiet()

	// Off, nobody is frozen.
	guests.become("")
	t.must(cluster.Client.Delete(t.ctx, first))
	t.waitGone(first)
	t.halt()
	t.endPod(pod)
	t.waitGone(vmi)
	offline := t.snapshot("offline", nil)
	t.cut(t.volumeSnapshot(offline, "a"), "")
	t.cut(t.volumeSnapshot(offline, "b"), "")
	if done = t.waitSnapshot(offline, "made", succeeded); indications(done) != "[PartialSnapshot]" {
		t.Errorf("indications %s", indications(done))
	}
	t.waitVM("unlocked", unlocked)
	t.quiet()

	// The kind goes away, and with it what the VM says of its volumes.
	t.undefine(&apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "volumesnapshotclasses.snapshot.storage.k8s.io"},
	})
	t.waitVM("without snapshots", func(vm *v1.VirtualMachine) bool {
		return !vm.Status.VolumeSnapshotStatuses[1].Enabled
	})
	t.must(cluster.Client.Delete(t.ctx, vm))
	t.waitGone(vm)
}

func succeeded(s *v1beta1.VirtualMachineSnapshotStatus) bool {
	return s.Phase == v1beta1.Succeeded && s.ReadyToUse != nil && *s.ReadyToUse
}

// indications are those that clients of the older field see.
func indications(s *v1beta1.VirtualMachineSnapshot) string {
	return fmt.Sprint(s.Status.Indications) //nolint:staticcheck // KubeVirt fills it in, too
}

func unlocked(vm *v1.VirtualMachine) bool {
	return vm.Status.SnapshotInProgress == nil && !slices.Contains(vm.Finalizers, snapshots.SourceFinalizer)
}

// progressing is what the condition Progressing says.
func progressing(s *v1beta1.VirtualMachineSnapshotStatus) string {
	for _, c := range s.Conditions {
		if c.Type == v1beta1.ConditionProgressing {
			return c.Reason
		}
	}
	return ""
}

func (t *test) halt() {
	t.Helper()
	vm := &v1.VirtualMachine{}
	t.must(cluster.Client.Get(t.ctx, t.key("demo"), vm))
	before := vm.DeepCopy()
	vm.Spec.RunStrategy = new(v1.RunStrategyHalted)
	t.must(cluster.Client.Patch(t.ctx, vm, client.MergeFrom(before)))
}

func (t *test) waitThawed(vmi types.NamespacedName) {
	t.Helper()
	t.eventually("thaw", func() (bool, error) { return !guests.isFrozen(vmi), nil })
}

func (t *test) boundClaim(name, class string) {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: name, Labels: map[string]string{"kept": "yes"}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: quantity("1Gi")},
			},
		},
	}
	t.must(cluster.Client.Create(t.ctx, claim))
	t.setBound(claim, nil)
}

func (t *test) snapshot(name string, deadline *metav1.Duration) *v1beta1.VirtualMachineSnapshot {
	t.Helper()
	out := &v1beta1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: name},
		Spec: v1beta1.VirtualMachineSnapshotSpec{
			Source: corev1.TypedLocalObjectReference{
				APIGroup: new("kubevirt.io"), Kind: snapshots.SourceKind, Name: "demo",
			},
			FailureDeadline: deadline,
		},
	}
	t.must(cluster.Client.Create(t.ctx, out))
	return out
}

func (t *test) waitSnapshot(
	of *v1beta1.VirtualMachineSnapshot, what string, condition func(*v1beta1.VirtualMachineSnapshotStatus) bool,
) *v1beta1.VirtualMachineSnapshot {
	t.Helper()
	out := &v1beta1.VirtualMachineSnapshot{}
	t.eventually("snapshot "+of.Name+": "+what, func() (bool, error) {
		err := cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(of), out)
		return err == nil && out.Status != nil && condition(out.Status), err
	})
	return out
}

func (t *test) waitContent(
	of *v1beta1.VirtualMachineSnapshot, what string, condition func(*v1beta1.VirtualMachineSnapshotContent) bool,
) *v1beta1.VirtualMachineSnapshotContent {
	t.Helper()
	out := &v1beta1.VirtualMachineSnapshotContent{}
	t.eventually("content of "+of.Name+": "+what, func() (bool, error) {
		err := cluster.Client.Get(t.ctx, t.key(snapshots.ContentName(of)), out)
		return err == nil && condition(out), client.IgnoreNotFound(err)
	})
	return out
}

// volumeSnapshot waits for that of a volume.
func (t *test) volumeSnapshot(of *v1beta1.VirtualMachineSnapshot, volume string) *snapshotv1.VolumeSnapshot {
	t.Helper()
	out := &snapshotv1.VolumeSnapshot{}
	t.eventually("VolumeSnapshot of "+volume, func() (bool, error) {
		err := cluster.Client.Get(t.ctx, t.key(snapshots.VolumeSnapshotName(of.UID, volume)), out)
		return err == nil, client.IgnoreNotFound(err)
	})
	return out
}

// cut plays the CSI driver, which makes a snapshot or fails.
func (t *test) cut(snapshot *snapshotv1.VolumeSnapshot, failure string) {
	t.Helper()
	before := snapshot.DeepCopy()
	snapshot.Status = &snapshotv1.VolumeSnapshotStatus{ReadyToUse: new(failure == "")}
	if failure == "" {
		snapshot.Status.CreationTime = new(metav1.Now())
	} else {
		snapshot.Status.Error = &snapshotv1.VolumeSnapshotError{Message: &failure, Time: new(metav1.Now())}
	}
	t.must(cluster.Client.Status().Patch(t.ctx, snapshot, client.MergeFrom(before)))
}

// storageClass makes a class unless another test has made it.
func (t *test) storageClass(name, provisioner string) {
	t.Helper()
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner}
	if err := cluster.Client.Create(t.ctx, class); !apierrors.IsAlreadyExists(err) {
		t.must(err)
	}
}

// undefine deletes a definition and waits until its kind is gone, which the next test relies on.
func (t *test) undefine(definition *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	t.must(client.IgnoreNotFound(cluster.Client.Delete(ctx, definition)))
	t.must(wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(definition), definition)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}))
}

// installSnapshots makes CSI's kinds, for the time of the test, and a class for driver csi.example.
func (t *test) installSnapshots() {
	t.Helper()
	files, err := filepath.Glob(
		"../../cmd/virt-local-csi/internal/sidecars/crds/snapshot.storage.k8s.io_volumesnapshot*.yaml")
	t.must(err)
	if len(files) < 2 {
		t.Fatalf("definitions %v", files)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		t.must(err)
		definition := &apiextensionsv1.CustomResourceDefinition{}
		t.must(yaml.Unmarshal(text, definition))
		t.must(cluster.Client.Create(t.ctx, definition))
		t.Cleanup(func() { t.undefine(definition) })
	}
	class := &snapshotv1.VolumeSnapshotClass{
		ObjectMeta: metav1.ObjectMeta{Name: "snap"}, Driver: "csi.example",
		DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
	}
	t.eventually("VolumeSnapshotClass", func() (bool, error) {
		err := cluster.Client.Create(t.ctx, class)
		return err == nil || apierrors.IsAlreadyExists(err), nil // It is served a moment later.
	})
}
