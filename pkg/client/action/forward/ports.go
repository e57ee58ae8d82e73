package forward

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Port is a local port that leads to one of a guest's.
type Port struct {
	// Protocol is tcp or udp.
	Protocol string
	// Local is 0 for any that is free.
	Local uint16
	// Remote is the guest's.
	Remote uint16
}

// ParsePort reads [PROTOCOL/]LOCAL[:REMOTE], as in 8080:80, udp/53 and :22, where an absent LOCAL, or 0, is any that is
// free.
func ParsePort(text string) (Port, error) {
	p := Port{Protocol: TCP}
	rest := text
	if protocol, ports, ok := strings.Cut(text, "/"); ok {
		p.Protocol, rest = strings.ToLower(protocol), ports
	}
	if p.Protocol != TCP && p.Protocol != UDP {
		return p, fmt.Errorf("port %q: the protocol is tcp or udp, not %q", text, p.Protocol)
	}
	local, remote, two := strings.Cut(rest, ":")
	var err error
	if p.Local, err = number(local); err != nil && (!two || local != "") {
		return p, fmt.Errorf("port %q: %w", text, err)
	}
	p.Remote = p.Local
	if two {
		if p.Remote, err = number(remote); err != nil {
			return p, fmt.Errorf("port %q: %w", text, err)
		}
	}
	if p.Remote == 0 {
		return p, fmt.Errorf("port %q: the guest has no port 0; 0:22 forwards any free local port to 22", text)
	}
	return p, nil
}

var errPort = errors.New("want [PROTOCOL/]LOCAL[:REMOTE] with numbers up to 65535")

func number(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, errPort
	}
	return uint16(n), nil
}

// Local is an open local port.
type Local struct {
	Port
	// Address is the local end, with the port that was found where 0 was asked for.
	Address string

	listener net.Listener
	packets  net.PacketConn
}

// Close closes the local port.
func (l *Local) Close() error {
	if l.listener != nil {
		return l.listener.Close()
	}
	return l.packets.Close()
}

// ListenSocks opens a local port for Socks.
func ListenSocks(at string) (net.Listener, error) {
	l, err := net.Listen(TCP, at)
	if err != nil {
		return nil, notOpened(at, TCP, err)
	}
	return l, nil
}

// notOpened returns the error about a local port. It takes err out of its *net.OpError, which elsewhere stands for an
// error of a connection to the cluster.
func notOpened(at, protocol string, err error) error {
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		err = op.Err
	}
	return fmt.Errorf("open local port %s/%s: %w", at, protocol, err)
}

// Listen opens a port at each of the addresses. Where any free port will do it is the same at all of them. On an error
// nothing stays open.
func (p Port) Listen(addresses []string) (locals []*Local, err error) {
	defer func() {
		if err != nil {
			for _, l := range locals {
				_ = l.Close() // opened a moment ago
			}
			locals = nil
		}
	}()
	for _, address := range addresses {
		l := &Local{Port: p}
		at := net.JoinHostPort(address, strconv.Itoa(int(p.Local)))
		if p.Protocol == UDP {
			if l.packets, err = net.ListenPacket(UDP, at); err == nil {
				l.Address = l.packets.LocalAddr().String()
			}
		} else {
			if l.listener, err = net.Listen(TCP, at); err == nil {
				l.Address = l.listener.Addr().String()
			}
		}
		if err != nil {
			return locals, notOpened(at, p.Protocol, err)
		}
		locals = append(locals, l)
		_, found, err := net.SplitHostPort(l.Address)
		if err != nil {
			return locals, err
		}
		if p.Local, err = number(found); err != nil {
			return locals, err
		}
		l.Local = p.Local
	}
	return locals, nil
}
