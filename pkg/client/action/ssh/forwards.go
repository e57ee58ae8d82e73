package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
)

// Forward is one forwarded port, as OpenSSH's -L, -R and -D have it.
type Forward struct {
	// Remote is whether the guest listens and we connect (-R); else we listen and the guest connects.
	Remote bool
	// Listen is HOST:PORT.
	Listen string
	// To is HOST:PORT; "" is what each client asks for by SOCKS5 (-D).
	To string
}

// ParseForward reads [BIND:]PORT:HOST:HOSTPORT, and with socks [BIND:]PORT. An IPv6 address is in brackets. Without
// BIND only programs on the listening machine itself can connect; * is all addresses.
func ParseForward(text string, remote, socks bool) (Forward, error) {
	parts, err := split(text)
	if err != nil {
		return Forward{}, err
	}
	least, shape := 3, "[BIND:]PORT:HOST:HOSTPORT"
	if socks {
		least, shape = 1, "[BIND:]PORT"
	}
	if len(parts) == least {
		parts = append([]string{"localhost"}, parts...)
	}
	if len(parts) != least+1 {
		return Forward{}, fmt.Errorf("%q is not %s", text, shape)
	}
	for i, part := range parts {
		if i%2 == 0 {
			if part == "" && i > 0 {
				return Forward{}, fmt.Errorf("%q is not %s", text, shape)
			}
			continue
		}
		if n, err := strconv.ParseUint(part, 10, 16); err != nil || n == 0 && i == 3 {
			return Forward{}, fmt.Errorf("%q: %q is no port", text, part)
		}
	}
	if parts[0] == "*" {
		parts[0] = ""
	}
	f := Forward{Remote: remote, Listen: net.JoinHostPort(parts[0], parts[1])}
	if !socks {
		f.To = net.JoinHostPort(parts[2], parts[3])
	}
	return f, nil
}

// split cuts at colons outside of brackets.
func split(text string) ([]string, error) {
	var out []string
	for {
		if rest, is := strings.CutPrefix(text, "["); is {
			host, rest, found := strings.Cut(rest, "]")
			if !found || rest != "" && rest[0] != ':' {
				return nil, fmt.Errorf("%q: a [ without its ]", text)
			}
			out = append(out, host)
			if rest == "" {
				return out, nil
			}
			text = rest[1:]
			continue
		}
		part, rest, more := strings.Cut(text, ":")
		out = append(out, part)
		if !more {
			return out, nil
		}
		text = rest
	}
}

// Forwarder serves forwarded ports over a client.
type Forwarder struct {
	Client *ssh.Client
	// Failed, which may be nil, is called for connections that could not be made, at any time.
	Failed func(error)

	listeners []net.Listener
	work      sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
	done  bool
}

// Start listens. The address is where, with the port that was chosen for port 0.
func (f *Forwarder) Start(ctx context.Context, spec Forward) (net.Addr, error) {
	var l net.Listener
	var err error
	if spec.Remote {
		l, err = f.Client.Listen("tcp", spec.Listen)
	} else {
		l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", spec.Listen)
	}
	if err != nil {
		if op := (*net.OpError)(nil); errors.As(err, &op) {
			err = op.Err // of this machine, and not of reaching the cluster
		}
		return nil, fmt.Errorf("listen on %s: %w", spec.Listen, err)
	}
	f.listeners = append(f.listeners, l)
	f.work.Go(func() { f.accept(ctx, l, spec) })
	return l.Addr(), nil
}

// Close ends all, and waits.
func (f *Forwarder) Close() {
	for _, l := range f.listeners {
		l.Close()
	}
	f.mu.Lock()
	f.done = true
	for conn := range f.conns {
		conn.Close()
	}
	f.mu.Unlock()
	f.work.Wait()
}

// hold keeps conn for Close; false is that all has ended.
func (f *Forwarder) hold(conn net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done {
		return false
	}
	if f.conns == nil {
		f.conns = map[net.Conn]bool{}
	}
	f.conns[conn] = true
	return true
}

func (f *Forwarder) drop(conn net.Conn) {
	conn.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, conn)
}

func (f *Forwarder) accept(ctx context.Context, l net.Listener, spec Forward) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return // closed by us, or with the connection to the guest
		}
		if !f.hold(conn) {
			conn.Close()
			return
		}
		f.work.Go(func() {
			defer f.drop(conn)
			if err := f.serve(ctx, conn, spec); err != nil && f.Failed != nil {
				f.Failed(err)
			}
		})
	}
}

func (f *Forwarder) serve(ctx context.Context, conn net.Conn, spec Forward) error {
	to, answer := spec.To, func(error) error { return nil }
	if to == "" {
		var err error
		if to, answer, err = socks(conn); err != nil {
			return err
		}
	}
	var other net.Conn
	var err error
	if spec.Remote {
		other, err = (&net.Dialer{}).DialContext(ctx, "tcp", to)
	} else {
		other, err = f.Client.DialContext(ctx, "tcp", to)
	}
	if aerr := answer(err); err != nil || aerr != nil {
		if other != nil {
			other.Close()
		}
		return fmt.Errorf("connect to %s: %w", to, errors.Join(err, aerr))
	}
	if !f.hold(other) {
		return other.Close()
	}
	defer f.drop(other)
	join(conn, other)
	return nil
}

// join copies both ways until both have ended; each end is passed on by itself.
func join(a, b net.Conn) {
	var both sync.WaitGroup
	pass := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		half, ok := to.(interface{ CloseWrite() error })
		if err != nil || !ok || half.CloseWrite() != nil {
			to.Close()
			from.Close()
		}
	}
	both.Go(func() { pass(a, b) })
	both.Go(func() { pass(b, a) })
	both.Wait()
}
