package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/watch"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/tests/bench/report"
)

const (
	// limitWithin is how far what a guest does may be from its limit, as a part of it.
	limitWithin = .1
	// limitFor is how long it is measured.
	limitFor = 10 * time.Second
	// growLimit is for a disk that a guest uses, from the change of its claim.
	growLimit = 2
)

// limits measures how near a guest that writes as fast as it can comes to the limits of its disk, by QEMU's own
// counters.
func limits(ctx context.Context, b *bench) (rows []Row, err error) {
	if err := buildDriver(ctx); err != nil {
		return nil, err
	}
	vm := b.vm("limited", v1.RunStrategyAlways)
	spec := &vm.Spec.Template.Spec
	spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, v1.Disk{
		Name: "empty", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}},
	})
	spec.Volumes = append(spec.Volumes, v1.Volume{Name: "empty", VolumeSource: v1.VolumeSource{
		EmptyDisk: &v1.EmptyDiskSource{Capacity: resource.MustParse("64Mi")},
	}})
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
	for _, l := range []struct {
		name, what, unit, limit, block string
		value, scale                   float64
		of                             func(counters) int64
	}{
		{
			"limit-bandwidth", "a disk limited to 4 MiB/s: written", "MiB/s", "write-bps=4Mi", "256k", 4, 1 << 20,
			func(c counters) int64 { return c.Bytes },
		},
		{
			"limit-iops", "a disk limited to 100 requests a second: written", "requests/s", "iops=100", "4k", 100, 1,
			func(c counters) int64 { return c.Requests },
		},
	} {
		rate, err := g.written(ctx, l.limit, l.block, l.of)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.name, err)
		}
		row := Row{
			Name: l.name, What: l.what, Unit: l.unit, Value: rate / l.scale, Anchor: l.value, Versus: "the limit",
			Goal: fmt.Sprintf("within %g %%", limitWithin*100),
		}
		row.Ratio = row.Value / row.Anchor
		row.Reached = math.Abs(row.Ratio-1) <= limitWithin
		rows = append(rows, row)
	}
	return rows, nil
}

// counters are QEMU's of a disk.
type counters struct {
	Bytes    int64 `json:"bytes"`
	Requests int64 `json:"requests"`
	// At is when they were read, nanoseconds.
	At int64 `json:"at"`
}

// written limits the guest's empty disk, has it written in blocks of a size, and returns how many of what is counted
// were written in a second.
func (g *guest) written(
	ctx context.Context, limit, block string, of func(counters) int64,
) (rate float64, err error) {
	const settle = 3 * time.Second
	if _, stderr, err := g.Virtctl(ctx, nil, "-n", g.namespace, "set", "qos", g.vmi.Name, "--none", "--disk",
		"empty="+limit); err != nil {
		return 0, fmt.Errorf("virtctl set qos: %w: %s", err, stderr)
	}
	load := fmt.Sprintf("(while :; do dd if=/dev/zero of=/dev/vdb bs=%s count=64 oflag=direct 2>/dev/null; done) & "+
		"echo $! >/tmp/load", block)
	if err := say(ctx, g, load); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, say(ctx, g, "kill $(cat /tmp/load)")) }()
	if err := pause(ctx, settle); err != nil {
		return 0, err
	}
	first, err := g.counters(ctx)
	if err != nil {
		return 0, err
	}
	if err := pause(ctx, limitFor); err != nil {
		return 0, err
	}
	last, err := g.counters(ctx)
	if err != nil {
		return 0, err
	}
	return float64(of(last)-of(first)) / time.Duration(last.At-first.At).Seconds(), nil
}

func (g *guest) counters(ctx context.Context) (c counters, err error) {
	pod, err := g.pod(ctx)
	if err != nil {
		return c, err
	}
	text, err := drive(ctx, pod, nil, "written", "vdb")
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("plain written says %q: %w", text, err)
	}
	return c, nil
}

// growing measures how long a disk that a guest uses takes to grow, from the change of its claim until the instance
// says that the guest has the new size.
func growing(ctx context.Context, b *bench) (rows []Row, err error) {
	claim := b.claim("grows", "64Mi")
	mode := corev1.PersistentVolumeBlock
	claim.Spec.VolumeMode = &mode
	if err := b.Client.Create(ctx, claim); err != nil {
		return nil, err
	}
	defer b.cleanUp(claim, &err)
	vm := b.vm("grows", v1.RunStrategyAlways)
	plug(vm, claim.Name)
	if err := b.Client.Create(ctx, vm); err != nil {
		return nil, err
	}
	defer b.cleanUp(vm, &err)
	if err := b.untilLogin(ctx, vm); err != nil {
		return nil, err
	}
	vmi := b.vmi(vm.Name)
	var took []time.Duration
	for i := range max(b.rounds/2, 2) {
		size := resource.NewQuantity(int64(128+64*i)<<20, resource.BinarySI)
		patch := fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":%q}}}}`, size)
		one, err := b.timed(ctx, vmi, &v1.VirtualMachineInstanceList{},
			func() error {
				return b.Client.Patch(ctx, claim, client.RawPatch("application/merge-patch+json", []byte(patch)))
			},
			func(e watch.Event) (bool, error) {
				is, ok := e.Object.(*v1.VirtualMachineInstance)
				if !ok {
					return false, nil
				}
				for _, s := range is.Status.VolumeStatus {
					if s.Name == claim.Name && s.Size == size.Value() {
						return true, nil
					}
				}
				return false, nil
			})
		if err != nil {
			return nil, err
		}
		took = append(took, one)
	}
	return []Row{
		report.Timed("grow", "growing a disk that a guest uses: claim changed → the guest has it, median", "s",
			took, .5).AtMost(growLimit),
	}, nil
}
