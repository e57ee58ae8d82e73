package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/controller/snapshotcontroller"
	"github.com/virtkit/virtkit/tests/bench/report"
)

const (
	// storage is the name of virt-local's StorageClass and of its VolumeSnapshotClass.
	storage = "local"
	// diskCount is how many claims the VM has whose snapshots are measured.
	diskCount = 3
	// snapshotsEach is how many snapshots are taken of one VM, in turns with their anchor.
	snapshotsEach = 3
	// settled is the time before each: what the one before, a start or a stop has left to do is over.
	settled = 2 * time.Second
)

// Goals of snapshots and restores.
const (
	snapshotLimit = 3   // times the bare VolumeSnapshots of the disks, at once
	frozenLimit   = 300 // ms
	restoreLimit  = 2 * time.Second
)

// fewer is how many rounds are made of what takes a VM's life, or a disk's copy: three of eight.
func (b *bench) fewer() int { return max(b.rounds*3/8, 1) }

// snapshots measures a snapshot of a running VM with three disks beside a VolumeSnapshot of one of them, how long its
// guest does not write meanwhile, with file systems that its agent freezes and paused without, and how long a restore
// takes until the guest is back at its prompt, beside the first start of the same VM.
func snapshots(ctx context.Context, b *bench) ([]Row, error) {
	var s snapshotSamples
	for round := range b.fewer() {
		if err := b.snapshotRound(ctx, round, &s); err != nil {
			return nil, err
		}
	}
	// How much of that is not virtkit's: so many VolumeSnapshots of nobody, made at once, and a guest that is asked to
	// freeze and to thaw, for nothing.
	const bare = "bare VolumeSnapshot"
	three := "three at once of " + bare + "s"
	return []Row{
		report.Timed("snapshot", "snapshot of a running VM, 3 disks: created → ready, median", "s", s.taken, .5).
			Beside(three, s.bareAll, .5).Times(snapshotLimit),
		report.Timed("snapshot-one", "… beside a single VolumeSnapshot, median", "s", s.taken, .5).
			Beside(bare, s.bare, .5),
		report.Timed("snapshot-freeze", "… and a freeze and a thaw alone, median", "s", s.asked, .5).
			Beside(bare, s.bare, .5),
		report.Timed("snapshot-off", "snapshot of a stopped VM, 3 disks: created → ready, median", "s", s.off, .5).
			Beside(three, s.bareAll, .5).Times(snapshotLimit),
		report.Timed("snapshot-frozen", "snapshot of a running VM, 3 file systems: frozen by its agent for, median",
			"ms", s.frozen, .5).AtMost(frozenLimit),
		report.Timed("snapshot-frozen-p95", "… p95", "ms", s.frozen, .95),
		report.Timed("snapshot-paused", "… nothing mounted: paused for, median", "ms", s.paused, .5).
			AtMost(frozenLimit),
		report.Timed("snapshot-paused-p95", "… p95", "ms", s.paused, .95),
		report.Timed("snapshot-paused-ready", "… nothing mounted: created → ready, median", "s", s.takenPaused, .5).
			Beside(three, s.bareAll, .5),
		report.Timed("restore-login", "restore in place → login prompt, median", "s", s.restored, .5).
			Beside("create → login", s.logins, .5).Beyond(restoreLimit.Seconds()),
	}, nil
}

// snapshotSamples are what was measured: snapshots of a VM whose agent freezes it, of one that is paused and of one
// that is off, one VolumeSnapshot and all of a VM's at once, a freeze and a thaw alone, how long snapshots froze and
// paused the guest, first starts and restores.
type snapshotSamples struct {
	taken, takenPaused, off, bare, bareAll []time.Duration
	asked, frozen, paused                  []time.Duration
	logins, restored                       []time.Duration
}

// snapshotRound is the life of one VM: started, snapshotted, stopped, restored, started, gone.
func (b *bench) snapshotRound(ctx context.Context, round int, s *snapshotSamples) (err error) {
	name := fmt.Sprintf("kept-%d", round)
	vm := b.vm(name, v1.RunStrategyAlways)
	for i := range diskCount {
		claim := b.claim(fmt.Sprintf("%s-%d", name, i), "64Mi")
		if err := b.Client.Create(ctx, claim); err != nil {
			return err
		}
		defer b.cleanUp(claim, &err)
		plug(vm, claim.Name)
	}
	defer b.cleanUp(vm, &err)
	start := time.Now()
	if err := b.Client.Create(ctx, vm); err != nil {
		return err
	}
	if err := b.untilLogin(ctx, vm); err != nil {
		return err
	}
	s.logins = append(s.logins, time.Since(start))

	paused := b.snapshotsOf(name, "paused")
	for _, snapshot := range paused {
		defer b.cleanUp(snapshot, &err)
	}
	if err := b.takePaused(ctx, name, paused, s); err != nil {
		return err
	}
	if err := b.mountDisks(ctx, name); err != nil {
		return err
	}
	freezer, err := snapshotcontroller.NewFreezer(b.Config)
	if err != nil {
		return err
	}
	var last *snapshotv1beta1.VirtualMachineSnapshot
	for i := range snapshotsEach {
		if err := pause(ctx, settled); err != nil {
			return err
		}
		bare := b.volumeSnapshot(fmt.Sprintf("%s-bare-%d", name, i), name+"-0")
		defer b.cleanUp(bare, &err)
		took, err := b.timed(ctx, bare, &snapshotv1.VolumeSnapshotList{},
			func() error { return b.Client.Create(ctx, bare) }, volumeSnapshotReady)
		if err != nil {
			return err
		}
		s.bare = append(s.bare, took)
		if err := pause(ctx, settled); err != nil {
			return err
		}
		var all []*snapshotv1.VolumeSnapshot
		for disk := range diskCount {
			all = append(all,
				b.volumeSnapshot(fmt.Sprintf("%s-all-%d-%d", name, i, disk), fmt.Sprintf("%s-%d", name, disk)))
			defer b.cleanUp(all[disk], &err)
		}
		if took, err = b.takeAll(ctx, all); err != nil {
			return err
		}
		s.bareAll = append(s.bareAll, took)
		if took, err = b.freeze(ctx, freezer, name); err != nil {
			return err
		}
		s.asked = append(s.asked, took)
		if err := pause(ctx, settled); err != nil {
			return err
		}
		last = b.snapshot(fmt.Sprintf("%s-snapshot-%d", name, i), name)
		defer b.cleanUp(last, &err)
		if took, err = b.takeQuiesced(ctx, last, snapshotv1beta1.VMSnapshotGuestAgentIndication); err != nil {
			return err
		}
		s.taken = append(s.taken, took)
	}
	frozen, err := b.frozen(name)
	if err != nil {
		return err
	}
	if len(frozen) != 2*snapshotsEach {
		return fmt.Errorf("%d snapshots froze vmi %s %d times", 2*snapshotsEach, name, len(frozen))
	}
	s.paused, s.frozen = append(s.paused, frozen[:snapshotsEach]...), append(s.frozen, frozen[snapshotsEach:]...)

	if err := b.stop(ctx, vm); err != nil {
		return err
	}
	for i := range snapshotsEach {
		if err := pause(ctx, settled); err != nil {
			return err
		}
		last = b.snapshot(fmt.Sprintf("%s-off-%d", name, i), name)
		defer b.cleanUp(last, &err)
		took, err := b.take(ctx, last)
		if err != nil {
			return err
		}
		s.off = append(s.off, took)
	}
	start = time.Now()
	restore := b.restore(name+"-back", name, last.Name)
	defer b.cleanUp(restore, &err)
	if _, err := b.timed(ctx, restore, &snapshotv1beta1.VirtualMachineRestoreList{},
		func() error { return b.Client.Create(ctx, restore) }, restoreComplete); err != nil {
		return err
	}
	if err := b.run(ctx, vm, v1.RunStrategyAlways); err != nil {
		return err
	}
	if err := b.untilLogin(ctx, vm); err != nil {
		return err
	}
	s.restored = append(s.restored, time.Since(start))
	return nil
}

// take makes a snapshot of a VM, and returns how long that takes.
func (b *bench) take(ctx context.Context, snapshot *snapshotv1beta1.VirtualMachineSnapshot) (time.Duration, error) {
	return b.timed(ctx, snapshot, &snapshotv1beta1.VirtualMachineSnapshotList{},
		func() error { return b.Client.Create(ctx, snapshot) }, snapshotReady)
}

// freeze freezes and thaws a guest, as a snapshot does, and returns how long both take.
func (b *bench) freeze(
	ctx context.Context, freezer snapshotcontroller.Freezer, name string,
) (time.Duration, error) {
	vmi, start := types.NamespacedName{Namespace: b.namespace, Name: name}, time.Now()
	if _, err := freezer.Freeze(ctx, vmi, patience); err != nil {
		return 0, err
	}
	err := freezer.Unfreeze(ctx, vmi)
	return time.Since(start), err
}

// takeAll makes VolumeSnapshots at once, and returns how long the last of them takes.
func (b *bench) takeAll(ctx context.Context, all []*snapshotv1.VolumeSnapshot) (time.Duration, error) {
	group, ctx := errgroup.WithContext(ctx)
	took := make([]time.Duration, len(all))
	for i, bare := range all {
		group.Go(func() (err error) {
			took[i], err = b.timed(ctx, bare, &snapshotv1.VolumeSnapshotList{},
				func() error { return b.Client.Create(ctx, bare) }, volumeSnapshotReady)
			return err
		})
	}
	err := group.Wait()
	return slices.Max(took), err
}

func (b *bench) vm(name string, strategy v1.VirtualMachineRunStrategy) *v1.VirtualMachine {
	return &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: b.namespace},
		Spec: v1.VirtualMachineSpec{
			RunStrategy: &strategy,
			Template:    &v1.VirtualMachineInstanceTemplateSpec{Spec: b.vmi(name).Spec},
		},
	}
}

func (b *bench) claim(name, size string) *corev1.PersistentVolumeClaim {
	class := storage
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: b.namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
			},
		},
	}
}

// plug gives a VM a disk that is the claim's.
func plug(vm *v1.VirtualMachine, claim string) {
	spec := &vm.Spec.Template.Spec
	spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, v1.Disk{
		Name: claim, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}},
	})
	spec.Volumes = append(spec.Volumes, v1.Volume{Name: claim, VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		},
	}})
}

func (b *bench) volumeSnapshot(name, claim string) *snapshotv1.VolumeSnapshot {
	class := storage
	return &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: b.namespace},
		Spec: snapshotv1.VolumeSnapshotSpec{
			Source:                  snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim},
			VolumeSnapshotClassName: &class,
		},
	}
}

func vmReference(name string) corev1.TypedLocalObjectReference {
	return corev1.TypedLocalObjectReference{APIGroup: &v1.GroupVersion.Group, Kind: "VirtualMachine", Name: name}
}

func (b *bench) snapshot(name, vm string) *snapshotv1beta1.VirtualMachineSnapshot {
	return &snapshotv1beta1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: b.namespace},
		Spec:       snapshotv1beta1.VirtualMachineSnapshotSpec{Source: vmReference(vm)},
	}
}

func (b *bench) restore(name, vm, snapshot string) *snapshotv1beta1.VirtualMachineRestore {
	return &snapshotv1beta1.VirtualMachineRestore{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: b.namespace},
		Spec: snapshotv1beta1.VirtualMachineRestoreSpec{
			Target: vmReference(vm), VirtualMachineSnapshotName: snapshot,
		},
	}
}

func volumeSnapshotReady(e watch.Event) (bool, error) {
	s, ok := e.Object.(*snapshotv1.VolumeSnapshot)
	if !ok || s.Status == nil {
		return false, nil
	}
	if s.Status.Error != nil && s.Status.Error.Message != nil {
		return false, fmt.Errorf("VolumeSnapshot %s: %s", s.Name, *s.Status.Error.Message)
	}
	return s.Status.ReadyToUse != nil && *s.Status.ReadyToUse, nil
}

func snapshotReady(e watch.Event) (bool, error) {
	s, ok := e.Object.(*snapshotv1beta1.VirtualMachineSnapshot)
	if !ok || s.Status == nil {
		return false, nil
	}
	if s.Status.Phase == snapshotv1beta1.Failed {
		return false, fmt.Errorf("snapshot %s failed: %+v", s.Name, s.Status.Conditions)
	}
	return s.Status.Phase == snapshotv1beta1.Succeeded && s.Status.ReadyToUse != nil && *s.Status.ReadyToUse, nil
}

func restoreComplete(e watch.Event) (bool, error) {
	r, ok := e.Object.(*snapshotv1beta1.VirtualMachineRestore)
	return ok && r.Status != nil && r.Status.Complete != nil && *r.Status.Complete, nil
}

// untilLogin waits until the VM's guest is at its prompt.
func (b *bench) untilLogin(ctx context.Context, vm *v1.VirtualMachine) error {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: vm.Name, Namespace: vm.Namespace}}
	_, running := kindOf(vmi)
	nothing := func() error { return nil }
	if _, err := b.timed(ctx, vmi, &v1.VirtualMachineInstanceList{}, nothing, running); err != nil {
		return err
	}
	conn, err := b.console(ctx, vmi, everything)
	if err != nil {
		return err
	}
	return errors.Join(until(conn, "login: "), conn.Close())
}

func (b *bench) run(ctx context.Context, vm *v1.VirtualMachine, strategy v1.VirtualMachineRunStrategy) error {
	patch := fmt.Sprintf(`{"spec":{"runStrategy":%q}}`, strategy)
	return b.Client.Patch(ctx, vm, client.RawPatch("application/merge-patch+json", []byte(patch)))
}

// stop halts a VM and waits until its guest and pod are gone.
func (b *bench) stop(ctx context.Context, vm *v1.VirtualMachine) error {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: vm.Name, Namespace: vm.Namespace}}
	_, err := b.timed(ctx, vmi, &v1.VirtualMachineInstanceList{},
		func() error { return b.run(ctx, vm, v1.RunStrategyHalted) },
		func(e watch.Event) (bool, error) { return e.Type == watch.Deleted, nil })
	return err
}

// cleanUp deletes an object that may be gone, also when the run was interrupted.
func (b *bench) cleanUp(object client.Object, err *error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	*err = errors.Join(*err, client.IgnoreNotFound(b.Client.Delete(ctx, object)))
}
