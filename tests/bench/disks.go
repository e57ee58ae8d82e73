package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
	"github.com/virtkit/virtkit/tests/bench/report"
)

const (
	// localStorage is the StorageClass of virt-local whose claims one node alone can use.
	localStorage = "local-node"
	// localSize is the size of a claim with cloneData on it, and of its file system.
	localSize = "1200Mi"
	// localDisk is the volume, and the claim that it has at first.
	localDisk = "local"
)

// Goals of a migration with a disk: how much of what libvirt alone copies in a second, and how much longer than without
// one the guest may be silent.
const (
	copyLimit    = .7
	diskGapLimit = 1.2
)

// diskMigration compares moving a guest with its disk, of 1 GiB on one node's storage, with what libvirt alone takes
// for a guest like it, and how long it is silent with a guest of virtkit's that moves without a disk. All move in
// turns.
func diskMigration(ctx context.Context, b *bench) (rows []Row, err error) {
	e, deafen, err := b.listen(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, deafen()) }()
	with, err := b.newBrought(ctx)
	if err != nil {
		return nil, err
	}
	defer b.cleanUp(with.vm, &err)
	without := &guest{bench: b, vmi: b.vmi("unladen")}
	if _, err := b.untilRunning(ctx, without.vmi); err != nil {
		return nil, err
	}
	defer b.cleanUp(without.vmi, &err)
	if err := login(ctx, without); err != nil {
		return nil, err
	}
	theirs, err := b.newPlainWithDisk(ctx, with)
	if err != nil {
		return nil, fmt.Errorf("libvirt alone: %w", err)
	}
	defer func() { err = errors.Join(err, theirs.close(ctx)) }()

	var here, bare, alone []moved
	for i := range samples(b.rounds) {
		for samples, m := range map[*[]moved]mover{&here: with, &bare: without, &alone: theirs} {
			one, err := b.observe(ctx, e, m, ":")
			if err != nil {
				return nil, fmt.Errorf("move %d of %T: %w", i+1, m, err)
			}
			if b.verbose {
				fmt.Fprintf(os.Stderr, "  %T: %v, silent %v, stood still %v\n", m, one.wall, one.gap, one.still)
			}
			*samples = append(*samples, one)
		}
	}
	return diskRows(here, bare, alone), nil
}

// diskRows makes the rows: here are guests that move with the disk, bare those without, alone those of libvirt alone.
func diskRows(here, bare, alone []moved) []Row {
	of := func(samples []moved, value func(moved) time.Duration) (all []time.Duration) {
		for _, s := range samples {
			all = append(all, value(s))
		}
		return all
	}
	wall := func(m moved) time.Duration { return m.wall }
	gap := func(m moved) time.Duration { return m.gap }
	const size = cloneData >> 20
	speed := Row{
		Name: "disk-copy", What: "migration with a disk of 1 GiB: copied in a second, disk and memory, median",
		Unit: "MiB/s", Value: size / percentile(of(here, wall), .5), Anchor: size / percentile(of(alone, wall), .5),
		Versus: "libvirt alone",
	}
	speed.Ratio = speed.Value / speed.Anchor
	return []Row{
		speed.AtLeast(copyLimit),
		report.Timed("disk-gap", "… silent for, median", "ms", of(here, gap), .5).
			Beside("migration without a disk", of(bare, gap), .5).Times(diskGapLimit),
		report.Timed("disk-gap-alone", "… beside libvirt alone, median", "ms", of(here, gap), .5).
			Beside("libvirt alone", of(alone, gap), .5),
	}
}

// brought is a VM that virtkit moves with its disk.
type brought struct {
	*guest
	vm *v1.VirtualMachine
}

func (b *bench) newBrought(ctx context.Context) (_ *brought, err error) {
	claim := b.localClaim(localDisk)
	if err := b.Client.Create(ctx, claim); err != nil {
		return nil, err
	}
	if err := b.fill(ctx, claim.Name); err != nil {
		return nil, err
	}
	vm := b.vm("laden", v1.RunStrategyAlways)
	plug(vm, localDisk)
	if err := b.Client.Create(ctx, vm); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			b.cleanUp(vm, &err)
		}
	}()
	if err := b.untilLogin(ctx, vm); err != nil {
		return nil, err
	}
	vmi := &v1.VirtualMachineInstance{}
	if err := b.Client.Get(ctx, client.ObjectKeyFromObject(vm), vmi); err != nil {
		return nil, err
	}
	g := &brought{guest: &guest{bench: b, vmi: vmi}, vm: vm}
	return g, login(ctx, g)
}

// localClaim is a claim that one node alone can use.
func (b *bench) localClaim(name string) *corev1.PersistentVolumeClaim {
	claim := b.claim(name, localSize)
	class := localStorage
	claim.Spec.StorageClassName = &class
	return claim
}

func (g *brought) pings() int { return 88 }

// move returns how long the copy took: the claim and the target pod, which libvirt alone has before the clock starts,
// are not in it.
func (g *brought) move(ctx context.Context) (wall, still time.Duration, err error) {
	m := g.migration()
	m.Annotations = map[string]string{volumemigration.WithDisksAnnotation: "true"}
	if wall, err = g.copied(ctx, m); err != nil {
		return 0, 0, err
	}
	if still, err = g.stoodStill(ctx); err != nil {
		return 0, 0, err
	}
	return wall, still, g.dropOld(ctx)
}

// copied makes a migration and returns how long its nodes copied, as a watcher of the instance sees it.
func (g *brought) copied(ctx context.Context, m *v1.VirtualMachineInstanceMigration) (time.Duration, error) {
	stop, err := g.follow(ctx)
	if err != nil {
		return 0, err
	}
	defer stop()
	var start, end time.Time
	_, err = g.timed(ctx, g.vmi, &v1.VirtualMachineInstanceList{}, func() error { return g.Client.Create(ctx, m) },
		func(e watch.Event) (bool, error) {
			vmi, ok := e.Object.(*v1.VirtualMachineInstance)
			if !ok || vmi.Status.MigrationState == nil || vmi.Status.MigrationState.MigrationUID != m.UID {
				return false, nil
			}
			ms := vmi.Status.MigrationState
			if start.IsZero() && ms.StartTimestamp != nil {
				start = time.Now()
			}
			if ms.Failed {
				return false, fmt.Errorf("migration %s failed: %s", m.Name, ms.FailureReason)
			}
			end = time.Now()
			return ms.Completed, nil
		})
	if err != nil {
		return 0, err
	}
	_, done := kindOf(m)
	_, err = g.timed(ctx, m, &v1.VirtualMachineInstanceMigrationList{}, func() error { return nil }, done)
	return end.Sub(start), err
}

// dropOld deletes the claims that the guest does not use any more.
func (g *brought) dropOld(ctx context.Context) error {
	used := volumemigration.InUse(&g.vmi.Status, localDisk)
	var list corev1.PersistentVolumeClaimList
	if err := g.Client.List(ctx, &list, client.InNamespace(g.namespace)); err != nil {
		return err
	}
	for i := range list.Items {
		claim := &list.Items[i]
		ours := claim.Name == localDisk || claim.Labels[volumemigration.CopiedVolumeLabel] == localDisk
		if !ours || claim.Name == used {
			continue
		}
		if err := client.IgnoreNotFound(g.Client.Delete(ctx, claim)); err != nil {
			return err
		}
	}
	return nil
}

// newPlainWithDisk is a guest like another, with a disk like its.
func (b *bench) newPlainWithDisk(ctx context.Context, like *brought) (*plain, error) {
	nodes, err := b.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range nodes.Items[:2] {
		node := nodes.Items[i].Name
		if err := b.Client.Create(ctx, b.localClaim(plainClaim(node))); err != nil {
			return nil, err
		}
		if i == 0 { // where the guest is first
			if err := b.fillOn(ctx, plainClaim(node), node); err != nil {
				return nil, err
			}
		}
	}
	return newPlain(ctx, b, like.guest, localDisk)
}
