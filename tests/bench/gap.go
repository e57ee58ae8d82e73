package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// tick is how often a guest says that it runs.
const tick = "0.005" // seconds, as ping wants it

// ears hear the pings of both families that arrive in a pod. What tells one's from another's is their size.
type ears struct {
	// at are the addresses of the pod, first that of the cluster's first family.
	at []netip.Addr
	// fds are a socket for each family of the addresses: others the kernel may not have.
	fds  map[*family]int
	done sync.WaitGroup

	mu    sync.Mutex
	heard map[int][]time.Time // by bytes of payload
	err   error
}

// family is one of IP's, as a raw socket of its ICMP tells what has come.
type family struct {
	domain, protocol int
	echoRequest      byte
	// header is how much comes before the ICMP message: a raw socket of IPv4 gives the packet, one of IPv6 the message
	// alone.
	header func(packet []byte) int
}

var (
	inIPv4 = &family{unix.AF_INET, unix.IPPROTO_ICMP, 8, func(packet []byte) int { return int(packet[0]&15) * 4 }}
	inIPv6 = &family{unix.AF_INET6, unix.IPPROTO_ICMPV6, 128, func([]byte) int { return 0 }}
)

// listen makes a pod that hears pings. deafen ends it.
func (b *bench) listen(ctx context.Context) (_ *ears, deafen func() error, err error) {
	observer := b.pod("observer")
	if _, err := b.untilRunning(ctx, observer); err != nil {
		return nil, nil, err
	}
	e, err := b.earsOf(ctx, observer)
	if err != nil {
		return nil, nil, errors.Join(err, b.remove(ctx, observer))
	}
	hearing, stop := context.WithCancel(ctx)
	for of, fd := range e.fds {
		e.done.Go(func() { e.hear(hearing, of, fd) })
	}
	return e, func() error {
		stop()
		_, err := b.untilGone(ctx, observer) // the next row has one of this name, too
		return errors.Join(e.close(), err)
	}, nil
}

func (b *bench) earsOf(ctx context.Context, pod *corev1.Pod) (*ears, error) {
	if err := b.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
		return nil, err
	}
	ns, err := podNamespace(pod)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	at, err := addressesOf(pod.Status.PodIPs)
	if err != nil {
		return nil, err
	}
	return listen(ns, at)
}

// familiesOf returns the families of addresses, each once.
func familiesOf(at []netip.Addr) (families []*family) {
	for _, a := range at {
		of := inIPv6
		if a.Is4() {
			of = inIPv4
		}
		if !slices.Contains(families, of) {
			families = append(families, of)
		}
	}
	return families
}

// listen opens the ears of a pod that has the addresses.
func listen(ns *os.File, at []netip.Addr) (*ears, error) {
	e := &ears{at: at, fds: map[*family]int{}, heard: map[int][]time.Time{}}
	made := make(chan error, 1)
	go func() {
		// Never unlocked: the runtime ends the thread, which has entered the namespace, with the goroutine.
		runtime.LockOSThread()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			made <- os.NewSyscallError("setns", err)
			return
		}
		var errs []error
		for _, of := range familiesOf(at) {
			errs = append(errs, e.open(of))
		}
		made <- errors.Join(errs...)
	}()
	if err := <-made; err != nil {
		return nil, errors.Join(fmt.Errorf("listen for pings: %w", err), e.close())
	}
	return e, nil
}

// open makes the socket of a family. The kernel notes when a packet came; this program may be late. Its waits are
// short, so that it hears of close.
func (e *ears) open(of *family) error {
	fd, err := unix.Socket(of.domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, of.protocol)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	e.fds[of] = fd
	return errors.Join(
		os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)),
		os.NewSyscallError("setsockopt",
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 200_000})),
	)
}

// hear takes pings of a family until ctx ends.
func (e *ears) hear(ctx context.Context, of *family, fd int) {
	packet, control := make([]byte, 2048), make([]byte, 256)
	for ctx.Err() == nil {
		n, controls, _, _, err := unix.Recvmsg(fd, packet, control, 0)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		var at time.Time
		if err == nil {
			at, err = received(control[:controls])
		}
		e.mu.Lock()
		if err != nil {
			e.err = err
			e.mu.Unlock()
			return
		}
		const header = 8
		if begin := of.header(packet); n >= begin+header && packet[begin] == of.echoRequest {
			size := n - begin - header
			e.heard[size] = append(e.heard[size], at)
		}
		e.mu.Unlock()
	}
}

// received is when the kernel got a packet.
func received(control []byte) (time.Time, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return time.Time{}, err
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
			return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:]))),
				nil
		}
	}
	return time.Time{}, errors.New("a packet without a time stamp")
}

// close waits for hear, whose context has ended.
func (e *ears) close() error {
	e.done.Wait()
	var errs []error
	for _, fd := range e.fds {
		errs = append(errs, unix.Close(fd))
	}
	return errors.Join(errs...)
}

// silence is the longest time without a ping of the size, of those that began between two moments. It waits until the
// guest is heard again.
func (e *ears) silence(ctx context.Context, size int, from, to time.Time) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		longest, heard, err := e.longest(size, from, to)
		if err != nil || heard {
			return longest, err
		}
		if pause(ctx, 100*time.Millisecond) != nil {
			return 0, errors.New("the guest is not heard any more")
		}
	}
}

// longest is as silence; heard is whether there was a ping since.
func (e *ears) longest(size int, from, to time.Time) (longest time.Duration, heard bool, _ error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var last time.Time
	for _, at := range e.heard[size] {
		if !last.IsZero() && !at.Before(from) && !last.After(to) {
			longest = max(longest, at.Sub(last))
		}
		last = at
	}
	return longest, last.After(to), e.err
}
