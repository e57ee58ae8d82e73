package stream

import "net"

// Socket is a TCP connection as an end of a Splice. When the splice ends with an error, the socket's peer sees a
// reset, and so cannot take what has arrived for all there was.
type Socket struct{ *net.TCPConn }

// CloseWithReason closes the connection, with a reset unless the code is CodeNormal. TCP carries no reason.
func (s Socket) CloseWithReason(code int, _ string) error {
	if code != CodeNormal {
		_ = s.SetLinger(0) // fails where Close fails
	}
	return s.Close()
}

// AsSocket makes conn a Socket if it is TCP, and else returns it as it is.
func AsSocket(conn net.Conn) net.Conn {
	if tcp, ok := conn.(*net.TCPConn); ok {
		return Socket{tcp}
	}
	return conn
}
