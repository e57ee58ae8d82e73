package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/virtkit/virtkit/tests/bench/report"
)

// equalGap is how much longer than in IPv4 a guest that moves may be silent in IPv6, times.
const equalGap = 1.25

// pingsOf are how many bytes the pings of each family carry, first IPv4.
var pingsOf = [2]int{56, 72}

// families compares how long a guest that moves is silent in IPv6 and in IPv4, in the same moves. It needs a cluster
// with both families, and has no rows on another.
func families(ctx context.Context, b *bench) (rows []Row, err error) {
	e, deafen, err := b.listen(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, deafen()) }()
	var at [2]netip.Addr
	for i, four := range []bool{true, false} {
		found := slices.IndexFunc(e.at, func(a netip.Addr) bool { return a.Is4() == four })
		if found < 0 {
			fmt.Fprintln(os.Stderr, "  pods of this cluster have no addresses of both families: nothing to compare")
			return nil, nil
		}
		at[i] = e.at[found]
	}
	g := &guest{bench: b, vmi: b.vmi("families")}
	withInit(g.vmi, "#!/bin/sh\n")
	g.vmi.Spec.Volumes[len(g.vmi.Spec.Volumes)-1].CloudInitNoCloud.NetworkData = "version: 2\nethernets:\n" +
		"  eth0: {dhcp4: true, dhcp6: true}\n"
	if _, err := b.untilRunning(ctx, g.vmi); err != nil {
		return nil, err
	}
	defer b.cleanUp(g.vmi, &err)
	if err := login(ctx, g); err != nil {
		return nil, err
	}
	var gaps [2][]time.Duration
	for i := range 2 * b.rounds {
		one, err := b.gaps(ctx, e, g, at)
		if err != nil {
			return nil, fmt.Errorf("move %d: %w", i+1, err)
		}
		if b.verbose {
			fmt.Fprintf(os.Stderr, "  silent %v in IPv4, %v in IPv6\n", one[0], one[1])
		}
		for f := range gaps {
			gaps[f] = append(gaps[f], one[f])
		}
	}
	return []Row{
		report.Timed("migration-gap-ipv6", "migration, idle guest: silent in IPv6 for, median", "ms", gaps[1], .5).
			Beside("in IPv4, the same moves", gaps[0], .5).Times(equalGap),
	}, nil
}

// gaps moves a guest that pings in both families, and returns how long it is silent in each.
func (b *bench) gaps(ctx context.Context, e *ears, g *guest, at [2]netip.Addr) (gaps [2]time.Duration, err error) {
	begin := "rm -f /tmp/ping"
	for f, a := range at {
		begin += fmt.Sprintf("; ping -q -s %d -i %s %s >/dev/null 2>&1 & echo $! >>/tmp/ping", pingsOf[f], tick, a)
	}
	if err := say(ctx, g, begin); err != nil {
		return gaps, err
	}
	if err := pause(ctx, time.Second); err != nil {
		return gaps, err
	}
	from := time.Now()
	if _, _, err := g.move(ctx); err != nil {
		return gaps, err
	}
	to := time.Now()
	for f := range gaps {
		if gaps[f], err = e.silence(ctx, pingsOf[f], from, to); err != nil {
			return gaps, fmt.Errorf("pings to %s: %w", at[f], err)
		}
	}
	return gaps, say(ctx, g, "kill $(cat /tmp/ping)")
}
