package exporter

import (
	"net"
	"sync/atomic"
)

// resetting is a listener whose connections are reset when they are closed after over is set. A connection that is
// closed ends for its peer after what is still to be taken of it. The network of a pod that ends goes before a slow
// peer has taken that, and then nothing tells the peer: a port that the node forwards, as virtctl uses it, waits 2.5
// minutes.
type resetting struct {
	net.Listener
	over *atomic.Bool
}

func (r *resetting) Accept() (net.Conn, error) {
	conn, err := r.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok {
		return &resettable{tcp, r.over}, err
	}
	return conn, err
}

// resettable is one of its connections.
type resettable struct {
	*net.TCPConn
	over *atomic.Bool
}

func (r *resettable) Close() error {
	if r.over.Load() {
		_ = r.SetLinger(0) // fails for one that is closed already
	}
	return r.TCPConn.Close()
}
