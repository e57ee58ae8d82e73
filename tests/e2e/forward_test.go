//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // it is what the guest has
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/forward"
	"github.com/virtkit/virtkit/pkg/stream"
)

// forwardData makes a file to fetch, and pages that receive, count datagrams, and serve a port until told to end.
const forwardData = `#!/bin/sh
dd if=/dev/urandom of=/www/random bs=1M count=4 2>/dev/null
cat >/www/cgi-bin/sum <<'END'
#!/bin/sh
printf 'Content-Type: text/plain\r\n\r\n'
md5sum </www/random
END
cat >/www/cgi-bin/datagrams <<'END'
#!/bin/sh
printf 'Content-Type: text/plain\r\n\r\n'
awk '/^Udp: [0-9]/ {n += $3} /^Udp6NoPorts/ {n += $2} END {print n}' /proc/net/snmp /proc/net/snmp6
END
cat >/usr/bin/summing <<'END'
#!/bin/sh
exec md5sum
END
chmod +x /www/cgi-bin/* /usr/bin/summing
nc -ll -p 7 -e /usr/bin/summing &
echo yes >/www/finished
`

// forwarded opens a local port that leads to one of the guest, for as long as the test runs, and gives its address.
func (g *guest) forwarded(t *testing.T, port uint16, protocol string) string {
	t.Helper()
	address, _ := g.forwardedTo(t, port, protocol)
	return address
}

// forwardedTo is forwarded, and dials a connection that has reached the guest.
func (g *guest) forwardedTo(t *testing.T, port uint16, protocol string) (string, func(*testing.T) net.Conn) {
	t.Helper()
	var opened sync.Map // the addresses of connections
	locals, err := forward.Port{Protocol: protocol, Remote: port}.Listen([]string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &forward.Forwarder{
		Dial:     forward.To(g.forwardClient(t), forward.Target{Namespace: g.ns, Name: g.name}),
		Patience: bootTime,
		Notify: func(e forward.Event) {
			t.Logf("%s %s: %d %v", e.Protocol, e.Client, e.Kind, e.Err)
			if e.Kind == forward.Opened {
				opened.Store(e.Client, true)
			}
		},
	}
	done := make(chan error, 1)
	go func() { done <- f.Serve(ctx, locals) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return locals[0].Address, func(t *testing.T) net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", locals[0].Address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		eventually(t, time.Minute, "a connection through the forwarded port", func() string {
			if _, is := opened.Load(conn.LocalAddr().String()); !is {
				return "it has not reached the guest"
			}
			return ""
		})
		return conn
	}
}

func (g *guest) forwardClient(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New(g.Config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// page fetches a page over a connection of its own.
func page(address, path string) ([]byte, error) {
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * time.Minute}
	response, err := c.Get("http://" + address + path)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}

// One guest with the masquerade and one with the bridge binding: TCP with its half-close, many connections, a port that
// refuses, datagrams, and a restart during which a connection waits.
func TestPortForward(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	config := withNetworkData(c.eth0(t))
	g := c.create(t, newVM(ns, "ports", v1.RunStrategyAlways, withUserData(forwardData), config))
	bridged := c.create(t, newVM(ns, "bridged", v1.RunStrategyAlways, config, func(vm *v1.VirtualMachine) {
		vm.Spec.Template.Spec.Domain.Devices.Interfaces[0].InterfaceBindingMethod = v1.InterfaceBindingMethod{
			Bridge: &v1.InterfaceBridge{},
		}
	}))
	g.waitLogin(t)
	address, dial := g.forwardedTo(t, 80, forward.TCP)
	// The guest asks for a name while its user data still run.
	eventually(t, bootTime, "the user data have run", func() string {
		if body, err := page(address, "/finished"); err != nil || string(body) != "yes\n" {
			return fmt.Sprintf("got %q, %v", body, err)
		}
		return ""
	})

	bridged.waitLogin(t)
	idle := bridged.startIdle(t)

	t.Run("tcp", func(t *testing.T) {
		random, err := page(address, "/random")
		if err != nil {
			t.Fatal(err)
		}
		sum, err := page(address, "/cgi-bin/sum")
		if err != nil || len(random) != 4<<20 || !strings.HasPrefix(string(sum), md5Of(random)) {
			t.Errorf("%d bytes arrived with sum %s, the guest's is %s, %v", len(random), md5Of(random), sum, err)
		}
		// The guest answers once it has seen the end of what it gets.
		answer, err := exchange(g.forwarded(t, 7, forward.TCP), random)
		if err != nil || !strings.HasPrefix(answer, md5Of(random)) {
			t.Errorf("the guest got %q, %v; want %s", answer, err, md5Of(random))
		}
	})
	t.Run("many", func(t *testing.T) {
		// The guest's httpd has room for nine that wait; when the guest is slow, its kernel resets what comes beyond.
		const count, together = 40, 8
		errs, places := make(chan error, count), make(chan struct{}, together)
		for range count {
			go func() {
				places <- struct{}{}
				defer func() { <-places }()
				body, err := page(address, "/cgi-bin/datagrams")
				if err == nil && len(body) == 0 {
					err = errors.New("an empty page")
				}
				errs <- err
			}()
		}
		for range count {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("refused", func(t *testing.T) {
		_, err := forward.Dial(t.Context(), g.forwardClient(t), forward.Target{Namespace: ns, Name: g.name}, 81,
			forward.TCP)
		if !forward.Refused(err) || !strings.Contains(err.Error(), "nothing listens on its port 81/tcp") {
			t.Errorf("got %v", err)
		}
		if _, err := page(g.forwarded(t, 81, forward.TCP), "/"); !errors.Is(err, syscall.ECONNRESET) &&
			!errors.Is(err, io.EOF) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("udp", func(t *testing.T) {
		count := func() int {
			body, err := page(address, "/cgi-bin/datagrams")
			if err != nil {
				t.Fatal(err)
			}
			n, err := strconv.Atoi(strings.TrimSpace(string(body)))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		before := count()
		conn, err := forward.Dial(t.Context(), g.forwardClient(t),
			forward.Target{Namespace: ns, Name: g.name, Instance: true}, 4000, forward.UDP)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for size := range 5 {
			if _, err := (stream.Packets{Conn: conn}).Write(make([]byte, 300*size)); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, 20*time.Second, "five datagrams in the guest", func() string {
			if now := count(); now < before+5 {
				return fmt.Sprintf("%d arrived", now-before)
			}
			return ""
		})
	})
	t.Run("bridge", func(t *testing.T) {
		if body, err := page(bridged.forwarded(t, 80, forward.TCP), "/"); err != nil || len(body) == 0 {
			t.Errorf("got %q, %v", body, err)
		}
	})
	t.Run("restart", func(t *testing.T) {
		idle := dial(t)
		g.virtctl(t, nil, "-n", ns, "restart", g.name, "--grace-period=0", "--force")
		if err := idle.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := idle.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a connection to a guest that is gone reads %v", err)
		}
		// While the guest shuts down, and before its server runs, the port is refused.
		eventually(t, bootTime, "the port after the restart", func() string {
			if body, err := page(address, "/"); err != nil || len(body) == 0 {
				return fmt.Sprintf("got %q, %v", body, err)
			}
			return ""
		})
	})
	t.Run("idle console", func(t *testing.T) {
		if err := <-idle; err != nil {
			t.Error(err)
		}
	})
}

// broken waits for a connection's end, which must not be an orderly one.
func broken(conn net.Conn) error {
	if err := conn.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		return err
	}
	_, err := conn.Read(make([]byte, 1))
	switch {
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("a connection that was cut reads %v, want a reset", err)
	}
	return nil
}

// exchange sends data and returns what is answered after its end.
func exchange(address string, data []byte) (string, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		return "", err
	}
	if _, err := io.Copy(conn, bytes.NewReader(data)); err != nil {
		return "", err
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

func md5Of(data []byte) string {
	sum := md5.Sum(data) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}
