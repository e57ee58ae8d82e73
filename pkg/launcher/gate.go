package launcher

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// gate stands between our libvirtd and the one that a guest moves to, and holds back one message: the answer that the
// guest is there, whole. libvirt here would end the guest at that word. As long as it waits, the guest here stands
// still, complete, and nothing is decided but by the two launchers.
//
// All else passes. libvirt's protocol is stable: a message begins with its length, and a header of six numbers. An
// answer that the gate does not know passes, too; then libvirt ends the guest here by itself, as it did before there
// was a gate.
type gate struct {
	listener net.Listener
	// dial reaches the other libvirtd.
	dial func(context.Context) (net.Conn, error)

	// holds is closed when an answer is held back.
	holds    chan struct{}
	holding  sync.Once
	decision sync.Once
	// decided is closed when the fate of that answer is known; pass says whether it passes.
	decided chan struct{}
	pass    bool
	active  sync.WaitGroup
	cancel  context.CancelFunc
}

// Numbers of libvirt's protocol, from src/remote/remote_protocol.x and src/rpc/virnetprotocol.x.
const (
	remoteProgram   = 0x20008086
	procedureFinish = 306 // REMOTE_PROC_DOMAIN_MIGRATE_FINISH3_PARAMS
	rpcCall         = 0
	rpcReply        = 1
	statusOK        = 0
	// rpcHeader is the length of what precedes a message's content, its own length included, and maxRPC that of the
	// longest message; bytes.
	rpcHeader = 4 + 6*4
	maxRPC    = 32<<20 + 4
)

// newGate serves on a listener until it is closed.
func newGate(ctx context.Context, listener net.Listener, dial func(context.Context) (net.Conn, error)) *gate {
	ctx, cancel := context.WithCancel(ctx)
	g := &gate{
		listener: listener, dial: dial, holds: make(chan struct{}), decided: make(chan struct{}),
		cancel: cancel,
	}
	g.active.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			g.active.Go(func() { g.serve(ctx, conn) })
		}
	})
	return g
}

// open lets the answer through, and shut never: the connection breaks instead, and libvirt lets its guest go on. What
// was said first counts. A nil gate has neither.
func (g *gate) open() { g.decide(true) }
func (g *gate) shut() { g.decide(false) }

func (g *gate) decide(pass bool) {
	if g == nil {
		return
	}
	g.decision.Do(func() {
		g.pass = pass
		close(g.decided)
	})
}

// held returns a channel that is closed when the guest is at the target; nil for a nil gate.
func (g *gate) held() <-chan struct{} {
	if g == nil {
		return nil
	}
	return g.holds
}

// close ends the gate with its connections.
func (g *gate) close() {
	if g == nil {
		return
	}
	g.listener.Close()
	g.cancel()
	g.active.Wait()
}

// serve passes messages between two libvirtds.
func (g *gate) serve(ctx context.Context, here net.Conn) {
	defer here.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	there, err := g.dial(ctx)
	if err != nil {
		return
	}
	defer there.Close()
	defer context.AfterFunc(ctx, func() { here.Close(); there.Close() })()
	go func() { // until here and there are closed
		select {
		case <-g.decided:
			if !g.pass {
				cancel()
			}
		case <-ctx.Done():
		}
	}()
	var finishing atomic.Bool
	var passing sync.WaitGroup
	passing.Go(func() {
		defer cancel()
		_ = passMessages(there, here, func(h rpc, body []byte) error {
			// cancelled, the last of the arguments, says that the other side is to end the guest there.
			finishing.Store(len(body) >= 4 && binary.BigEndian.Uint32(body[len(body)-4:]) == 0)
			return nil
		}, rpcCall)
	})
	passing.Go(func() {
		defer cancel()
		_ = passMessages(here, there, func(h rpc, _ []byte) error {
			if h.status != statusOK || !finishing.Load() {
				return nil
			}
			g.holding.Do(func() { close(g.holds) })
			select {
			case <-g.decided:
			case <-ctx.Done():
			}
			if ctx.Err() != nil || !g.pass {
				return errors.New("the guest stays")
			}
			return nil
		}, rpcReply)
	})
	passing.Wait()
}

// rpc is the header of a message.
type rpc struct {
	length                           uint32
	program, procedure, kind, status uint32
}

func readRPC(b [rpcHeader]byte) (rpc, error) {
	at := func(i int) uint32 { return binary.BigEndian.Uint32(b[4*i:]) }
	// At 2 is the version, at 5 the serial number.
	h := rpc{length: at(0), program: at(1), procedure: at(3), kind: at(4), status: at(6)}
	if h.length < rpcHeader || h.length > maxRPC {
		return rpc{}, fmt.Errorf("a message of %d bytes", h.length)
	}
	return h, nil
}

// passMessages copies messages. Each of the given kind that is about the end of a migration is shown first; an error
// ends it.
func passMessages(to io.Writer, from io.Reader, show func(rpc, []byte) error, kind uint32) error {
	for {
		var header [rpcHeader]byte
		if _, err := io.ReadFull(from, header[:]); err != nil {
			return err
		}
		h, err := readRPC(header)
		if err != nil {
			return err
		}
		content := io.LimitReader(from, int64(h.length-rpcHeader))
		if h.program == remoteProgram && h.procedure == procedureFinish && h.kind == kind {
			body, err := io.ReadAll(content)
			if err == nil {
				err = show(h, body)
			}
			if err != nil {
				return err
			}
			content = bytes.NewReader(body)
		}
		if _, err := to.Write(header[:]); err != nil {
			return err
		}
		if _, err := io.Copy(to, content); err != nil {
			return err
		}
	}
}
