package forward

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/stream"
)

// The protocol is by hand. armon/go-socks5 was read, things-go/go-socks5 0.1.1 (MIT) tried: 138 lines of ours instead
// of 216, but its server looks at a client's version only after it has read the methods: the clients of HTTP and SOCKS4
// in TestSocksReplies were refused after the timeout of 30 s instead of at once.

// Socks lets programs reach all guests by name through one SOCKS5 port (RFC 1928, CONNECT without authentication). The
// names are NAME, NAME.NAMESPACE, and with a kind NAME.vm, NAME.vmi, NAME.NAMESPACE.vm and NAME.NAMESPACE.vmi.
type Socks struct {
	Opener Opener
	// Namespace is that of a name without one.
	Namespace string
	// Patience and Notify are as in Forwarder.
	Patience time.Duration
	Notify   func(Event)
}

// socksTimeout bounds what a client may take to say what it wants.
const socksTimeout = 30 * time.Second

// Replies of RFC 1928, section 6.
const (
	socksSucceeded          = 0
	socksFailure            = 1
	socksNotAllowed         = 2
	socksHostUnreachable    = 4
	socksRefused            = 5
	socksBadCommand         = 7
	socksAddressUnsupported = 8
)

const (
	socksVersion = 5
	socksConnect = 1
	socksIPv4    = 1
	socksDomain  = 3
	socksIPv6    = 4
	socksNoAuth  = 0
	socksNone    = 0xff
)

// Serve accepts from l until ctx ends, as Forwarder.ServeTCP does.
func (s *Socks) Serve(ctx context.Context, l net.Listener) error {
	return serve(ctx, l, s.handle)
}

// errSocks is a client that speaks another protocol.
var errSocks = errors.New("the client does not speak SOCKS5 without authentication")

// ErrSocksAddress is a client that asks for an address where a name is needed.
var ErrSocksAddress = errors.New("the client asks for an IP address instead of a VM's name: let the proxy resolve " +
	"names, as with socks5h:// in curl")

func (s *Socks) handle(ctx context.Context, conn net.Conn) {
	socket := stream.AsSocket(conn)
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	e := Event{Protocol: TCP, Local: conn.LocalAddr().String(), Client: conn.RemoteAddr().String()}
	f := &Forwarder{Patience: s.Patience, Notify: s.Notify}
	remote, err := s.open(ctx, f, conn, &e)
	if err != nil {
		_ = conn.Close() // with the reply as its last word
		if ctx.Err() == nil {
			e.Kind, e.Err = Failed, err
			f.notify(e)
		}
		return
	}
	f.join(ctx, e, socket, remote)
}

// open reads a request and answers it.
func (s *Socks) open(ctx context.Context, f *Forwarder, conn net.Conn, e *Event) (*stream.Conn, error) {
	if err := conn.SetDeadline(time.Now().Add(socksTimeout)); err != nil {
		return nil, err
	}
	host, port, reply, err := readRequest(conn)
	if err != nil {
		if reply != socksSucceeded {
			err = errors.Join(err, writeReply(conn, reply))
		}
		return nil, err
	}
	e.Port = port
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	target, err := s.target(host)
	if err != nil {
		return nil, errors.Join(err, writeReply(conn, socksHostUnreachable))
	}
	f.Dial = To(s.Opener, target)
	remote, err := f.connect(ctx, *e)
	if err != nil {
		return nil, errors.Join(err, writeReply(conn, replyFor(err)))
	}
	if err := writeReply(conn, socksSucceeded); err != nil {
		_ = remote.Close()
		return nil, err
	}
	return remote, nil
}

func replyFor(err error) byte {
	switch {
	case Refused(err):
		return socksRefused
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return socksNotAllowed
	case apierrors.IsNotFound(err), stream.NotYet(err), Unreachable(err):
		return socksHostUnreachable
	}
	return socksFailure
}

// readRequest greets the client and reads what it wants. With an error the reply says whether, and what, to answer.
func readRequest(conn io.ReadWriter) (host string, port uint16, reply byte, err error) {
	var buf [256]byte
	if _, err := io.ReadFull(conn, buf[:2]); err != nil {
		return "", 0, 0, err
	}
	if buf[0] != socksVersion {
		return "", 0, 0, errSocks
	}
	methods := buf[:buf[1]]
	if _, err := io.ReadFull(conn, methods); err != nil {
		return "", 0, 0, err
	}
	if !strings.ContainsRune(string(methods), socksNoAuth) {
		_, err := conn.Write([]byte{socksVersion, socksNone})
		return "", 0, 0, errors.Join(errSocks, err)
	}
	if _, err := conn.Write([]byte{socksVersion, socksNoAuth}); err != nil {
		return "", 0, 0, err
	}
	if _, err := io.ReadFull(conn, buf[:4]); err != nil {
		return "", 0, 0, err
	}
	version, command, kind := buf[0], buf[1], buf[3]
	var length int
	switch kind {
	case socksIPv4:
		length = net.IPv4len
	case socksIPv6:
		length = net.IPv6len
	case socksDomain:
		if _, err := io.ReadFull(conn, buf[:1]); err != nil {
			return "", 0, 0, err
		}
		length = int(buf[0])
	default:
		return "", 0, socksAddressUnsupported, errSocks
	}
	if version != socksVersion {
		return "", 0, 0, errSocks
	}
	address := buf[:length]
	if _, err := io.ReadFull(conn, address); err != nil {
		return "", 0, 0, err
	}
	host = string(address)
	var number [2]byte
	if _, err := io.ReadFull(conn, number[:]); err != nil {
		return "", 0, 0, err
	}
	switch {
	case command != socksConnect:
		return "", 0, socksBadCommand,
			fmt.Errorf("the client asks for SOCKS5 command %d; only CONNECT is served", command)
	case kind != socksDomain:
		return "", 0, socksAddressUnsupported, ErrSocksAddress
	}
	return host, binary.BigEndian.Uint16(number[:]), 0, nil
}

// writeReply ends the handshake. The address in it is of no use to a client of ours.
func writeReply(conn io.Writer, reply byte) error {
	_, err := conn.Write([]byte{socksVersion, reply, 0, socksIPv4, 0, 0, 0, 0, 0, 0})
	return err
}

// target returns the guest that a client's name means.
func (s *Socks) target(host string) (Target, error) {
	if _, err := netip.ParseAddr(host); err == nil {
		return Target{}, ErrSocksAddress
	}
	t := Target{Namespace: s.Namespace}
	parts := strings.Split(strings.ToLower(strings.TrimSuffix(host, ".")), ".")
	if last := len(parts) - 1; last > 0 && (parts[last] == "vm" || parts[last] == "vmi") {
		t.Instance = parts[last] == "vmi"
		parts = parts[:last]
	}
	if last := len(parts) - 1; last > 0 {
		t.Namespace = parts[last]
		parts = parts[:last]
	}
	t.Name = strings.Join(parts, ".")
	for _, part := range append(parts, t.Namespace) {
		if part == "" || strings.Trim(part, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return t, fmt.Errorf("%q is not NAME or NAME.NAMESPACE of a virtual machine", host)
		}
	}
	return t, nil
}
