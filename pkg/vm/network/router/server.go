package router

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/network/apply"
)

const (
	// interval is the time between advertisements that nobody has asked for.
	interval = 10 * time.Minute
	// pause is the time after an answer in which nothing is read: whoever asks more often than once in it is answered
	// once, at its end.
	pause = time.Second
	// queued bounds the solicitations that wait, bytes; the kernel gives no less than it needs for one or two.
	queued = 4 << 10
	// solicitation is ICMPv6's type of the question.
	solicitation = 133
)

// Server advertises on one tap until it is closed.
type Server struct {
	tap   string
	frame []byte
	file  *os.File
	log   *slog.Logger
	end   chan struct{}
	done  chan struct{}
}

// Listen starts to advertise on a tap of the network namespace ns, at once and when asked.
func Listen(ns *os.File, tap string, frame []byte, log *slog.Logger) (*Server, error) {
	file, err := open(ns, tap)
	if err != nil {
		return nil, fmt.Errorf("advertise a router on %s: %w", tap, err)
	}
	s := &Server{tap: tap, frame: frame, file: file, log: log, end: make(chan struct{}), done: make(chan struct{})}
	go s.serve()
	return s, nil
}

// Close ends the server and waits for it.
func (s *Server) Close() error {
	close(s.end)
	err := s.file.Close()
	<-s.done
	if err != nil {
		return fmt.Errorf("end the advertisements on %s: %w", s.tap, err)
	}
	return nil
}

func (s *Server) serve() {
	defer close(s.done)
	buf := make([]byte, 1) // nothing is read of it
	for {
		// Before QEMU has opened the tap, and after, there is nobody to send to, and the next guest asks by itself.
		if _, err := s.file.Write(s.frame); err != nil && !errors.Is(err, os.ErrClosed) {
			s.log.Debug("cannot advertise a router", "link", s.tap, "err", err)
		}
		select {
		case <-s.end:
			return
		case <-time.After(pause):
		}
		if err := s.file.SetReadDeadline(time.Now().Add(interval)); err != nil {
			return // closed
		}
		_, err := s.file.Read(buf)
		switch {
		case errors.Is(err, os.ErrClosed):
			return
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			s.log.Debug("cannot read router solicitations", "link", s.tap, "err", err) // the link went down, say
		}
		s.drain(buf)
	}
}

// drain forgets solicitations that one answer is for, as many as wait.
func (s *Server) drain(buf []byte) {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return // closed
	}
	// It fails once the file is closed, which the loop sees.
	_ = raw.Control(func(fd uintptr) {
		for range queued {
			if _, err := unix.Read(int(fd), buf); err != nil {
				return
			}
		}
	})
}

// open returns a socket that hears the router solicitations which come out of a tap, and sends frames into it.
func open(ns *os.File, tap string) (*os.File, error) {
	var fd int
	err := apply.In(ns, func() error {
		link, err := net.InterfaceByName(tap)
		if err != nil {
			return err
		}
		// Without a protocol it hears nothing until it is bound, with the filter in place.
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		if err := prepare(fd, link.Index); err != nil {
			_ = unix.Close(fd)
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "router advertisements on "+tap), nil
}

func prepare(fd, link int) error {
	program, err := filter()
	if err != nil {
		return err
	}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, program); err != nil {
		return os.NewSyscallError("attach the filter", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, queued); err != nil {
		return os.NewSyscallError("bound the queue", err)
	}
	// What comes in at a bridge's port is the bridge's before it is of a protocol.
	protocol := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
	return os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: link}))
}

// filter lets ICMPv6 router solicitations pass that came out of the tap, with a hop limit that no router has passed on.
func filter() (*unix.SockFprog, error) {
	raw, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PACKET_OUTGOING, SkipTrue: 9},
		bpf.LoadAbsolute{Off: ethernetHeader - 2, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IPV6, SkipTrue: 7},
		bpf.LoadAbsolute{Off: ethernetHeader + 6, Size: 1}, // the next header
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_ICMPV6, SkipTrue: 5},
		bpf.LoadAbsolute{Off: ethernetHeader + 7, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: hopLimit, SkipTrue: 3},
		bpf.LoadAbsolute{Off: ethernetHeader + ipHeader, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: solicitation, SkipTrue: 1},
		bpf.RetConstant{Val: 1},
		bpf.RetConstant{Val: 0},
	})
	if err != nil {
		return nil, fmt.Errorf("assemble the filter: %w", err)
	}
	program := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		program[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}, nil
}
