package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// tick is how often a guest says that it runs.
const tick = "0.005" // seconds, as ping wants it

// ears hear the pings that arrive in a pod. What tells one guest's from another's is their size.
type ears struct {
	// at is the address of the pod.
	at   string
	fd   int
	done chan struct{}

	mu    sync.Mutex
	heard map[int][]time.Time // by bytes of payload
	err   error
}

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
	go e.hear(hearing)
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
	e, err := listen(ns)
	if err == nil {
		e.at = pod.Status.PodIP
	}
	return e, err
}

// listen opens a pod's ears.
func listen(ns *os.File) (*ears, error) {
	type result struct {
		fd  int
		err error
	}
	made := make(chan result, 1)
	go func() {
		// Never unlocked: the runtime ends the thread, which has entered the namespace, with the goroutine.
		runtime.LockOSThread()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			made <- result{err: os.NewSyscallError("setns", err)}
			return
		}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
		made <- result{fd, os.NewSyscallError("socket", err)}
	}()
	r := <-made
	if r.err != nil {
		return nil, r.err
	}
	// The kernel notes when a packet came; this program may be late. Its waits are short, so that it hears of close.
	err := errors.Join(
		unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		unix.SetsockoptTimeval(r.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 200_000}),
	)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up a raw socket: %w", err), unix.Close(r.fd))
	}
	e := &ears{fd: r.fd, done: make(chan struct{}), heard: map[int][]time.Time{}}
	return e, nil
}

// hear takes pings until ctx ends.
func (e *ears) hear(ctx context.Context) {
	defer close(e.done)
	packet, control := make([]byte, 2048), make([]byte, 256)
	for ctx.Err() == nil {
		n, controls, _, _, err := unix.Recvmsg(e.fd, packet, control, 0)
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
		const echoRequest, header = 8, 8
		if ip := int(packet[0]&15) * 4; n >= ip+header && packet[ip] == echoRequest {
			size := n - ip - header
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
	<-e.done
	return unix.Close(e.fd)
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
