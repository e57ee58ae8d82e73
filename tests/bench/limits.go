package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/network/reach"
)

const (
	// limitWithin is how far what a guest does may be from its limit, as a part of it.
	limitWithin = .1
	// limitFor is how long it is measured.
	limitFor = 10 * time.Second
	// settle is how long a change of a limit takes at most.
	settle = 3 * time.Second
)

// limits measures how near a guest that writes, or sends, as fast as it can comes to the limits of its disk, by QEMU's
// own counters, and of its interface, by what arrives in its pod.
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
		rows = append(rows, near(Row{
			Name: l.name, What: l.what, Unit: l.unit, Value: rate / l.scale, Anchor: l.value,
		}))
	}
	const sends = 4 // MiB/s
	rate, err := g.sent(ctx, fmt.Sprintf("out=%dMi", sends))
	if err != nil {
		return nil, fmt.Errorf("limit-interface: %w", err)
	}
	return append(rows, near(Row{
		Name: "limit-interface", What: "an interface limited to 4 MiB/s: sent", Unit: "MiB/s", Value: rate,
		Anchor: sends,
	})), nil
}

// near gives a row the goal to be near its limit, which is its anchor.
func near(row Row) Row {
	row.Versus, row.Goal = "the limit", fmt.Sprintf("within %g %%", limitWithin*100)
	row.Ratio = row.Value / row.Anchor
	row.Reached = math.Abs(row.Ratio-1) <= limitWithin
	return row
}

// sent limits the guest's interface, and returns how much a connection from its pod gets of the guest, MiB in a second.
func (g *guest) sent(ctx context.Context, limit string) (rate float64, err error) {
	if _, stderr, err := g.Virtctl(ctx, nil, "-n", g.namespace, "set", "qos", g.vmi.Name, "--none", "--interface",
		"default="+limit); err != nil {
		return 0, fmt.Errorf("virtctl set qos: %w: %s", err, stderr)
	}
	zeros := fmt.Sprintf("dd if=/dev/zero of=/www/zero bs=1M count=%d 2>/dev/null", forwardSize)
	if err := say(ctx, g, zeros); err != nil {
		return 0, err
	}
	if err := pause(ctx, settle); err != nil {
		return 0, err
	}
	pod, err := g.podNetwork(ctx, g.vmi)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, pod.Close()) }()
	at := netip.AddrPortFrom(netip.MustParseAddr("10.0.2.2"), 80)
	took, err := fetch(func() (net.Conn, error) { return reach.In(ctx, pod, reach.TCP, at) })
	return forwardSize / took.Seconds(), err
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
