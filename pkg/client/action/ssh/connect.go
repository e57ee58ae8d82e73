package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/stream"
)

// silence is how long a server may take until it has shown its host key. After that the user may be asked things.
const silence = 30 * time.Second

// ErrDenied is a server that accepts none of the user's credentials.
var ErrDenied = errors.New("permission denied")

// Login is who logs in where.
type Login struct {
	User string
	// Host is the name that the host key is known by, and Port the server's.
	Host string
	Port uint16
	Auth Auth
	Keys HostKeys
}

// Connect logs in over conn, which it closes on an error. Errors are ErrDenied, *HostKeyError, action.ErrTimeout for a
// server that says nothing, ctx's own, and others.
func Connect(ctx context.Context, conn net.Conn, l Login) (*ssh.Client, error) {
	client, err := connect(ctx, conn, l)
	if err != nil {
		conn.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
	return client, nil
}

func connect(ctx context.Context, conn net.Conn, l Login) (*ssh.Client, error) {
	address := net.JoinHostPort(l.Host, fmt.Sprint(l.Port))
	check, algorithms, err := l.Keys.callback(address)
	if err != nil {
		return nil, err
	}
	methods, agent, err := l.Auth.methods(ctx)
	if err != nil {
		return nil, err
	}
	if agent != nil {
		defer agent.Close()
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	var mute atomic.Bool
	patience := time.AfterFunc(silence, func() { mute.Store(true); conn.Close() })
	defer patience.Stop()
	var keyErr error
	config := &ssh.ClientConfig{
		User: l.User, Auth: methods, HostKeyAlgorithms: algorithms,
		HostKeyCallback: func(host string, addr net.Addr, key ssh.PublicKey) error {
			patience.Stop()
			keyErr = check(host, addr, key)
			return keyErr
		},
	}
	c, channels, requests, err := ssh.NewClientConn(conn, address, config)
	switch {
	case err == nil:
		return ssh.NewClient(c, channels, requests), nil
	case keyErr != nil:
		return nil, keyErr
	case mute.Load():
		return nil, fmt.Errorf("%w: %s says nothing on port %d; does an ssh server run there?", action.ErrTimeout,
			l.Host, l.Port)
	case strings.Contains(err.Error(), "unable to authenticate"):
		return nil, fmt.Errorf("%s@%s: %w (%s)", l.User, l.Host, ErrDenied, tried(err))
	}
	return nil, notLoggedIn(l.Host, err)
}

// notLoggedIn returns the error of a login that failed for another reason than the user's credentials. A connection
// that ends before the login is over is usual for a guest that restarts.
func notLoggedIn(host string, err error) error {
	var closed *stream.CloseError
	var network net.Error
	if errors.Is(err, io.EOF) || errors.As(err, &closed) || errors.As(err, &network) {
		why := stream.Cause(err)
		if closed != nil {
			why = closed.Error()
		} else if errors.Is(err, io.EOF) {
			why = "the guest has closed it"
		}
		return fmt.Errorf("log in to %s: %w before the login: %s; it may be restarting, and --timeout waits for a "+
			"guest that does not listen yet", host, action.ErrLost, why)
	}
	return fmt.Errorf("log in to %s: %w", host, err)
}

// tried returns the methods that a server has refused, out of the library's own message.
func tried(err error) string {
	_, after, _ := strings.Cut(err.Error(), "attempted methods [")
	methods, _, found := strings.Cut(after, "]")
	if !found {
		return "no method"
	}
	var out []string
	for _, m := range strings.Fields(methods) {
		if m != "none" {
			out = append(out, m)
		}
	}
	if len(out) == 0 {
		return "no key to offer"
	}
	return "tried " + strings.Join(out, ", ")
}
