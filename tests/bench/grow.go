package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/tests/bench/report"
)

// growLimit is for a disk that a guest uses, from the change of its claim, seconds.
const growLimit = 2

// growing measures how long a disk that a guest uses takes to grow, from the change of its claim until the guest's
// kernel has another size, which a loop on its console looks for every 20 ms: a disk of a claim of mode Block, and one
// that is a file.
func growing(ctx context.Context, b *bench) (rows []Row, err error) {
	disks := []struct {
		row, what string
		from      int64 // MiB
		mode      corev1.PersistentVolumeMode
		claim     *corev1.PersistentVolumeClaim
		took      []time.Duration
	}{
		{row: "grow", what: "device", from: 64, mode: corev1.PersistentVolumeBlock},
		// From 1 GiB on, virt-local makes XFS, which grows while it is mounted without any right of the machine's.
		{row: "grow-file", what: "file", from: 1 << 10, mode: corev1.PersistentVolumeFilesystem},
	}
	vm := b.vm("grows", v1.RunStrategyAlways)
	for i := range disks {
		d := &disks[i]
		d.claim = b.claim("grows-"+d.what, fmt.Sprintf("%dMi", d.from))
		d.claim.Spec.VolumeMode = &d.mode
		if err := b.Client.Create(ctx, d.claim); err != nil {
			return nil, err
		}
		defer b.cleanUp(d.claim, &err)
		plug(vm, d.claim.Name)
	}
	if err := b.Client.Create(ctx, vm); err != nil {
		return nil, err
	}
	defer b.cleanUp(vm, &err)
	if err := b.untilLogin(ctx, vm); err != nil {
		return nil, err
	}
	g := &guest{bench: b, vmi: b.vmi(vm.Name)}
	if err := login(ctx, g); err != nil {
		return nil, err
	}
	for i := range samples(b.rounds) {
		for at := range disks {
			d := &disks[at]
			size := resource.NewQuantity((d.from+int64(64*(i+1)))<<20, resource.BinarySI)
			one, err := g.grown(ctx, d.claim, "vd"+string(rune('b'+at)), size)
			if err != nil {
				return nil, fmt.Errorf("a %s of %s: %w", d.what, size, err)
			}
			d.took = append(d.took, one)
		}
	}
	for _, d := range disks {
		rows = append(rows, report.Timed(d.row, "growing a disk that a guest uses, a "+d.what+
			": claim changed → the guest's kernel has it, median", "s", d.took, .5).AtMost(growLimit))
	}
	return rows, nil
}

// samples returns how many samples a row has that takes long, of rounds: half, and three at least.
func samples(rounds int) int { return max(rounds/2, 3) }

// grown has a claim ask for more, and returns how long it took until a disk of the guest has another size.
func (g *guest) grown(
	ctx context.Context, claim *corev1.PersistentVolumeClaim, disk string, size *resource.Quantity,
) (time.Duration, error) {
	at := "$(cat /sys/block/" + disk + "/size)"
	if err := say(ctx, g, "had="+at); err != nil {
		return 0, err
	}
	patch := fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":%q}}}}`, size)
	begun := time.Now()
	if err := g.Client.Patch(ctx, claim, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		return 0, err
	}
	err := say(ctx, g, "while [ $had = "+at+" ]; do usleep 20000; done")
	return time.Since(begun), err
}
