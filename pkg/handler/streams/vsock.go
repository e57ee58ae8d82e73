package streams

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/stream"
)

// vsock joins a websocket to a vsock port of the guest, through TLS unless the client wants none. A port that does not
// take the connection is an error before the upgrade.
func (s *Server) vsock(w http.ResponseWriter, r *http.Request) {
	port, encrypted, err := vsockOf(r)
	if err != nil {
		refuse(w, name(r), err)
		return
	}
	life := s.life(name(r))
	ctx, cancel := context.WithTimeout(r.Context(), guestTimeout)
	defer cancel()
	guest, err := s.DialVSOCK(ctx, name(r), port)
	if err == nil && encrypted {
		guest, err = s.encrypt(ctx, guest, port)
	}
	if err != nil {
		refuse(w, name(r), notOnVSOCK(err, name(r), port))
		return
	}
	s.forward(w, r, life, guest, "vsock", port)
}

// encrypt begins TLS on a connection, which it closes when that fails.
func (s *Server) encrypt(ctx context.Context, guest net.Conn, port uint32) (net.Conn, error) {
	over := tls.Client(guest, s.GuestTLS)
	if err := over.HandshakeContext(ctx); err != nil {
		guest.Close()
		return nil, fmt.Errorf("begin TLS with vsock port %d of the guest (tls=false connects without): %w", port, err)
	}
	return over, nil
}

func vsockOf(r *http.Request) (port uint32, encrypted bool, err error) {
	if !stream.IsUpgrade(r) {
		return 0, false, apierrors.NewBadRequest("this is a stream: ask for a websocket")
	}
	query := r.URL.Query()
	n, err := strconv.ParseUint(query.Get("port"), 10, 32)
	if err != nil || n == 0 || n == math.MaxUint32 {
		return 0, false,
			apierrors.NewBadRequest(fmt.Sprintf("port=%q is not a vsock port from 1 to %d", query.Get("port"),
				uint32(math.MaxUint32-1)))
	}
	encrypted = true
	if text := query.Get("tls"); text != "" {
		if encrypted, err = strconv.ParseBool(text); err != nil {
			return 0, false, apierrors.NewBadRequest(fmt.Sprintf("tls=%q is not true or false", text))
		}
	}
	return uint32(n), encrypted, nil
}

// notOnVSOCK returns the error that says why a guest's port was not reached, as notForwarded does.
func notOnVSOCK(err error, vmi types.NamespacedName, port uint32) error {
	status := metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusConflict,
		Details: &metav1.StatusDetails{Group: resource.Group, Kind: resource.Resource, Name: vmi.Name},
	}
	switch {
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.ECONNREFUSED):
		status.Reason = stream.ReasonPortRefused
		status.Message = fmt.Sprintf("the guest of %s refused the connection: nothing listens on its vsock "+
			"port %d", vmi, port)
	case errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ETIMEDOUT),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		status.Reason = stream.ReasonGuestUnreachable
		status.Message = fmt.Sprintf("the guest of %s does not answer on vsock port %d: it has not loaded its vsock "+
			"driver yet", vmi, port)
	default:
		return err
	}
	return &apierrors.StatusError{ErrStatus: status}
}
