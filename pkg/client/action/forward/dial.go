// Package forward reaches ports of guests through the API server: one connection (Dial), local ports that lead to
// a guest for as long as they are wanted (TCP, UDP), and all guests by name through one SOCKS5 port (Socks). It knows
// no terminal.
//
//	program ──► local port ──► websocket ──► API server ──► virt-api ──► virt-handler ──► guest
//
// Each connection is one websocket of its own; those of a busy port are opened ahead (standbys). So a connection ends
// with the guest, the node or a virt-api that it goes through, but the local port stays: the next connection finds the
// guest where it is by then.
package forward

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/stream"
)

// Protocols of a port.
const (
	TCP = "tcp"
	UDP = "udp"
)

// Target is a guest.
type Target struct {
	Namespace, Name string
	// Instance is whether Name is a VirtualMachineInstance's. Else it is a VirtualMachine's, or that of an
	// instance which belongs to none.
	Instance bool
}

// String returns NAMESPACE/NAME.
func (t Target) String() string { return t.Namespace + "/" + t.Name }

// Opener opens a stream to a port of a guest; *client.Client is one.
type Opener interface {
	PortForward(
		ctx context.Context, resource, namespace, name string, port uint16, protocol string,
	) (*stream.Conn, error)
}

// Dial connects to a port of a guest. ctx bounds the opening only. The connection has half-close; with
// protocol udp use it through stream.Packets. Errors of the server are API errors: no such machine (404), it does not
// run (409); see also Refused and Unreachable.
func Dial(ctx context.Context, c Opener, t Target, port uint16, protocol string) (*stream.Conn, error) {
	conn, err := ofTarget(t, func(resource string) (*stream.Conn, error) {
		return c.PortForward(ctx, resource, t.Namespace, t.Name, port, protocol)
	})
	return conn, failed(t, port, protocol, err)
}

// ofTarget opens a stream of a target's resource: a VM's, or that of an instance without one.
func ofTarget(t Target, open func(resource string) (*stream.Conn, error)) (*stream.Conn, error) {
	if t.Instance {
		return open(client.VMIs)
	}
	conn, err := open(client.VMs)
	if apierrors.IsNotFound(err) {
		if instance, ierr := open(client.VMIs); !apierrors.IsNotFound(ierr) {
			return instance, ierr
		}
	}
	return conn, err
}

func failed(t Target, port uint16, protocol string, err error) error {
	if err == nil || Refused(err) || Unreachable(err) {
		return err // says all that itself
	}
	return fmt.Errorf("connect to port %d/%s of %s: %w", port, protocol, t, err)
}

// Refused reports whether err is a guest that runs and in which nothing listens on the port.
func Refused(err error) bool { return apierrors.ReasonForError(err) == stream.ReasonPortRefused }

// Unreachable reports whether err is a guest that runs and whose network does not answer (yet).
func Unreachable(err error) bool {
	return apierrors.ReasonForError(err) == stream.ReasonGuestUnreachable
}
