package stream

import (
	"net"

	"golang.org/x/sys/unix"
)

// over reports whether a connection has ended in both directions, normally or by a reset.
func over(conn *net.TCPConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return true // closed by us
	}
	closed := true
	err = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		closed = err == nil && info.State == unix.BPF_TCP_CLOSE
	})
	return closed || err != nil
}
