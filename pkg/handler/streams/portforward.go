package streams

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/stream"
)

// guestTimeout bounds the opening of a connection to a guest. A guest that has not configured its
// network does not even refuse.
const guestTimeout = 5 * time.Second

// standbyLife is how long a stream on standby waits for its client to ask for the guest. virtctl closes those that it
// does not use earlier.
const standbyLife = time.Minute

// portForward joins a websocket to a port of the guest: bytes for tcp, a datagram a message for udp. A port that
// does not take the connection is an error before the upgrade.
func (s *Server) portForward(w http.ResponseWriter, r *http.Request) {
	port, protocol, err := portOf(r)
	if err != nil {
		refuse(w, name(r), err)
		return
	}
	if uid := types.UID(r.URL.Query().Get("uid")); uid != "" && s.Runs(name(r)) != uid {
		// virt-api remembers where it was, and looks again.
		refuse(w, name(r), apierrors.NewNotFound(resource, name(r).Name))
		return
	}
	life := s.life(name(r)) // before it is dialed, lest it be another's by then
	if protocol == "tcp" && stream.OffersStandby(r) {
		s.standBy(w, r, life, port)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), guestTimeout)
	defer cancel()
	guest, err := s.Dial(ctx, name(r), protocol, port)
	if err != nil {
		refuse(w, name(r), notForwarded(err, name(r), protocol, port))
		return
	}
	s.forward(w, r, life, guest, protocol, uint32(port))
}

// standBy accepts a stream whose client asks later for the port of the guest, which is dialed then. One that cannot be
// reached ends the stream: the client opens another, and is told the reason.
func (s *Server) standBy(w http.ResponseWriter, r *http.Request, life context.Context, port uint16) {
	s.active.Add(1)
	defer s.active.Done()
	conn, err := stream.Accept(w, r, stream.Options{Standby: true})
	if err != nil {
		return // Accept has answered
	}
	defer untilGone(life, conn)()
	guest, err := s.asked(life, conn, name(r), port)
	if err != nil {
		if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) {
			s.Log.Debug("stream on standby ended", "vmi", name(r).String(), "port", port, "err", err)
		}
		_ = conn.CloseNotReached() // the stream is over either way
		return
	}
	s.join(r, conn, stream.AsSocket(guest), "tcp", uint32(port))
}

// asked waits until the client of a stream on standby asks for the port, connects to it, and says so.
func (s *Server) asked(
	life context.Context, conn *stream.Conn, vmi types.NamespacedName, port uint16,
) (net.Conn, error) {
	if err := conn.AwaitAsk(s.ctx, standbyLife); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(s.ctx, guestTimeout)
	defer cancel()
	guest, err := s.Dial(ctx, vmi, "tcp", port)
	if err != nil {
		return nil, err
	}
	err = life.Err() // lest it is another guest of that name
	if err == nil {
		err = conn.Answer()
	}
	if err != nil {
		guest.Close() // nothing was sent over it
		return nil, err
	}
	return guest, nil
}

// forward accepts a stream and joins it with a connection to the guest, which it closes, for as long as the guest is
// there.
func (s *Server) forward(
	w http.ResponseWriter, r *http.Request, life context.Context, guest net.Conn, protocol string, port uint32,
) {
	s.active.Add(1)
	defer s.active.Done()
	conn, err := stream.Accept(w, r, stream.Options{})
	if err != nil {
		guest.Close() // Accept has answered
		return
	}
	var client, target io.ReadWriteCloser = conn, stream.AsSocket(guest)
	if protocol == "udp" {
		client, target = stream.Packets{Conn: conn}, &datagrams{Conn: guest}
	}
	defer untilGone(life, conn)()
	s.join(r, client, target, protocol, port)
}

// join copies between a client and a guest until both directions have ended.
func (s *Server) join(r *http.Request, client, guest io.ReadWriteCloser, protocol string, port uint32) {
	if err := stream.Splice(s.ctx, client, guest); err != nil {
		s.Log.Debug("forwarded connection ended", "vmi", name(r).String(), "protocol", protocol, "port", port,
			"err", err)
	}
}

func portOf(r *http.Request) (port uint16, protocol string, err error) {
	if !stream.IsUpgrade(r) {
		return 0, "", apierrors.NewBadRequest("this is a stream: ask for a websocket")
	}
	n, err := strconv.ParseUint(r.PathValue("port"), 10, 16)
	if err != nil || n == 0 {
		return 0, "",
			apierrors.NewBadRequest(fmt.Sprintf("port %q is not a number from 1 to 65535", r.PathValue("port")))
	}
	protocol = strings.ToLower(r.PathValue("protocol"))
	switch protocol {
	case "":
		protocol = "tcp"
	case "tcp", "udp":
	default:
		return 0, "", apierrors.NewBadRequest(fmt.Sprintf("protocol %q is not tcp or udp", protocol))
	}
	return uint16(n), protocol, nil
}

// notForwarded returns the error that says why a guest's port was not reached. The reasons are the stream package's, so
// that a client can distinguish a port that nobody listens on from a guest that is not there.
func notForwarded(err error, vmi types.NamespacedName, protocol string, port uint16) error {
	status := metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusConflict,
		Details: &metav1.StatusDetails{Group: resource.Group, Kind: resource.Resource, Name: vmi.Name},
	}
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		status.Reason = stream.ReasonPortRefused
		status.Message = fmt.Sprintf("the guest of %s refused the connection: nothing listens on its port %d/%s", vmi,
			port, protocol)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ETIMEDOUT),
		errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		status.Reason = stream.ReasonGuestUnreachable
		status.Message = fmt.Sprintf("the guest of %s does not answer on port %d/%s: its network is not up yet, or "+
			"its firewall drops the connection", vmi, port, protocol)
	default:
		return err
	}
	return &apierrors.StatusError{ErrStatus: status}
}

// datagrams is a connected UDP socket as an end of a splice. A datagram that was lost is no error, and neither is
// the guest's word that nobody listens: somebody may, later.
type datagrams struct {
	net.Conn
	ended atomic.Bool
}

// Read returns one datagram, and io.EOF after Close.
func (d *datagrams) Read(p []byte) (int, error) {
	for {
		n, err := d.Conn.Read(p)
		switch {
		case err == nil:
			return n, nil
		case d.ended.Load():
			return 0, io.EOF
		case !passing(err):
			return 0, err
		}
	}
}

// Write sends one datagram, which may be lost. What the guest said to an earlier one (nobody listens) comes as the
// error of this one, which then has not been sent: it is sent again.
func (d *datagrams) Write(p []byte) (int, error) {
	n, err := d.Conn.Write(p)
	if errors.Is(err, syscall.ECONNREFUSED) {
		n, err = d.Conn.Write(p)
	}
	if err != nil && !passing(err) {
		return n, err
	}
	return len(p), nil
}

// Close ends both directions: UDP has no half-close.
func (d *datagrams) Close() error {
	d.ended.Store(true)
	return d.Conn.Close()
}

// passing reports whether an error is about one datagram, not about the socket.
func passing(err error) bool {
	for _, one := range []error{
		syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EMSGSIZE,
		syscall.ENOBUFS, syscall.EPERM,
	} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}
