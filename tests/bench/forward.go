package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/forward"
	"github.com/virtkit/virtkit/pkg/vm/network/reach"
	"github.com/virtkit/virtkit/tests/bench/report"
)

// forwardSize is how much is fetched through a forwarded port at once, MiB. The guest keeps it in memory.
const forwardSize = 16

const forwardData = `#!/bin/sh
dd if=/dev/zero of=/www/zero bs=1M count=16 2>/dev/null
`

// portForward compares connections through the API server, virt-api and virt-handler with ones made in the guest's pod,
// beside the guest: the time until a new one is made, and how much it carries.
func portForward(ctx context.Context, b *bench) (rows []Row, err error) {
	vmi := b.vmi("ports")
	withInit(vmi, forwardData)
	gone, err := b.booted(ctx, vmi)
	defer func() { err = errors.Join(err, gone()) }()
	if err != nil {
		return nil, err
	}
	c, err := client.New(b.Config)
	if err != nil {
		return nil, err
	}
	ns, err := b.podNetwork(ctx, vmi)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	guest := netip.MustParseAddrPort("10.0.2.2:80")
	through := func() (net.Conn, error) {
		return forward.Dial(ctx, c, forward.Target{Namespace: vmi.Namespace, Name: vmi.Name, Instance: true},
			guest.Port(), forward.TCP)
	}
	direct := func() (net.Conn, error) { return reach.In(ctx, ns, reach.TCP, guest) }

	var dials, bareDials []time.Duration
	for range 3 * b.rounds {
		for samples, open := range map[*[]time.Duration]func() (net.Conn, error){&dials: through, &bareDials: direct} {
			start := time.Now()
			conn, err := open()
			if err != nil {
				return nil, err
			}
			*samples = append(*samples, time.Since(start))
			if err := conn.Close(); err != nil {
				return nil, err
			}
		}
	}
	next, err := nextConnections(ctx, c, vmi, guest.Port(), 3*b.rounds, direct)
	if err != nil {
		return nil, err
	}
	var fetches, bareFetches []time.Duration
	for range b.rounds {
		for samples, open := range map[*[]time.Duration]func() (net.Conn, error){
			&fetches:     through,
			&bareFetches: direct,
		} {
			took, err := fetch(open)
			if err != nil {
				return nil, err
			}
			*samples = append(*samples, took)
		}
	}
	const pod = "TCP from the guest's pod"
	carrying := Row{
		Name: "port-forward-throughput", What: fmt.Sprintf("port-forward, %d MiB from the guest, median", forwardSize),
		Unit: "MiB/s", Value: forwardSize / percentile(fetches, .5), Anchor: forwardSize / percentile(bareFetches, .5),
		Versus: pod,
	}
	carrying.Ratio = carrying.Value / carrying.Anchor
	return []Row{
		report.Timed("port-forward-connect", "port-forward, new connection, median", "ms", dials, .5).
			Beside(pod, bareDials, .5).Beyond(4),
		report.Timed("port-forward-next", "port-forward, next connection to a local port, median", "ms", next.opened,
			.5).Beside(pod, next.bareOpened, .5).
			Beyond(1),
		report.Timed("port-forward-answer", "… until the guest answers a request, median", "ms", next.answered, .5).
			Beside(pod, next.bareAnswered, .5).Beyond(1),
		carrying.AtLeast(.85),
	}, nil
}

// between is the pause before a connection to a local port, in which its stream is opened ahead. The anchor has it too:
// who has slept takes longer.
const between = 100 * time.Millisecond

// nexts is what connections to a local port take after a first one: until they reach the guest, and until the guest has
// answered what was asked at once. bare are connections from the guest's pod.
type nexts struct {
	opened, answered, bareOpened, bareAnswered []time.Duration
}

func nextConnections(
	ctx context.Context, c *client.Client, vmi *v1.VirtualMachineInstance, port uint16, rounds int,
	direct func() (net.Conn, error),
) (took nexts, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return took, err
	}
	target := forward.Target{Namespace: vmi.Namespace, Name: vmi.Name, Instance: true}
	opened := make(chan error, 1)
	f := &forward.Forwarder{
		Dial: forward.To(c, target), Standby: forward.StandbyTo(c, target),
		Notify: func(e forward.Event) {
			if e.Kind == forward.Opened || e.Kind == forward.Failed {
				opened <- e.Err
			}
		},
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- f.ServeTCP(ctx, l, port) }()
	defer func() {
		cancel()
		err = errors.Join(err, <-done)
	}()
	local := func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }
	for n := range rounds + 1 {
		for _, of := range []struct {
			open   func() (net.Conn, error)
			reach  func() error
			opened *[]time.Duration
			asked  *[]time.Duration
		}{
			{local, func() error { return <-opened }, &took.opened, &took.answered},
			{direct, func() error { return nil }, &took.bareOpened, &took.bareAnswered},
		} {
			reached, err := connection(of.open, of.reach, false)
			if err != nil {
				return took, err
			}
			answered, err := connection(of.open, of.reach, true)
			if err != nil {
				return took, err
			}
			if n > 0 {
				*of.opened, *of.asked = append(*of.opened, reached), append(*of.asked, answered)
			}
		}
	}
	return took, nil
}

// connection opens a connection after a pause and returns how long it took until it was reached, or, with ask, until
// the first byte of the guest's answer was there.
func connection(open func() (net.Conn, error), reached func() error, ask bool) (time.Duration, error) {
	time.Sleep(between)
	start := time.Now()
	conn, err := open()
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if !ask {
		err := reached()
		return time.Since(start), err
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return 0, err
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		return 0, err
	}
	return time.Since(start), reached()
}

// fetch gets the file over a new connection and returns how long its content took to arrive.
func fetch(open func() (net.Conn, error)) (time.Duration, error) {
	conn, err := open()
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	start := time.Now()
	if _, err := io.WriteString(conn, "GET /zero HTTP/1.0\r\n\r\n"); err != nil {
		return 0, err
	}
	// as a program reads, with no shortcuts
	n, err := io.Copy(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{conn})
	if err == nil && n < forwardSize<<20 {
		err = fmt.Errorf("the guest sent %d bytes of %d MiB", n, forwardSize)
	}
	return time.Since(start), err
}

// podNetwork opens the network namespace of the guest's pod.
func (b *bench) podNetwork(ctx context.Context, vmi *v1.VirtualMachineInstance) (*os.File, error) {
	pid, err := b.launcherPID(ctx, vmi)
	if err != nil {
		return nil, err
	}
	return os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
}
