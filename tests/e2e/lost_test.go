//go:build e2e

package e2e

import (
	"bytes"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"k8s.io/client-go/rest"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/tests/sshd"
)

var long = flag.Bool("long", false,
	"run what takes many minutes, too: a console that is idle for ten behind a proxy that cuts silent connections "+
		"after one; every fault at every stage of a migration, of a snapshot, of a clone and of a restore; "+
		"twenty migrations in a row")

// impatient is a TCP proxy that cuts connections on which either side has been silent for too long, as load balancers
// do.
func impatient(t *testing.T, target string, limit time.Duration) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	pass := func(to, from net.Conn) {
		defer to.Close()
		defer from.Close()
		buf := make([]byte, 4<<10)
		for from.SetReadDeadline(time.Now().Add(limit)) == nil {
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
	}
	work.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				client.Close()
				continue
			}
			work.Go(func() { pass(server, client) })
			work.Go(func() { pass(client, server) })
		}
	})
	t.Cleanup(func() { l.Close(); work.Wait() })
	return l.Addr().String()
}

// startIdle leaves a console of the guest, which shows a login prompt, silent behind such a proxy for longer than the
// proxy bears, and then presses Enter. The channel has how that went. Meanwhile the test does something else.
func (g *guest) startIdle(t *testing.T) <-chan error {
	t.Helper()
	limit, silence := 35*time.Second, 45*time.Second // pings come every 20 s
	if *long {
		limit, silence = time.Minute, 10*time.Minute
	}
	server, err := url.Parse(g.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(g.Config)
	config.ServerName = server.Hostname()
	proxy := impatient(t, server.Host, limit)
	config.Host = "https://" + proxy
	// This one shows that the proxy does what it is for.
	control, err := net.Dial("tcp", proxy)
	if err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/apis/subresources.kubevirt.io/v1/namespaces/%s/virtualmachineinstances/%s/console", g.ns,
		g.name)
	conn, err := stream.Dial(t.Context(), config, path, nil, stream.Options{})
	if err != nil {
		control.Close()
		t.Fatal(err)
	}
	done := make(chan error, 1)
	cut, said := make(chan error, 1), make(chan struct{}, 1)
	go func() { // reading is what answers pings; a guest may say something of its own accord
		buf := make([]byte, 4<<10)
		for {
			if _, err := conn.Read(buf); err != nil {
				cut <- err
				return
			}
			select {
			case said <- struct{}{}:
			default:
			}
		}
	}()
	go func() {
		done <- func() error {
			defer conn.Close()
			defer control.Close()
			select {
			case err := <-cut:
				return fmt.Errorf("the console was cut: %w", err)
			case <-time.After(silence):
			}
			if err := control.SetReadDeadline(time.Now().Add(limit)); err != nil {
				return err
			}
			if _, err := control.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				return fmt.Errorf("the proxy did not cut a silent connection: %w", err)
			}
			select {
			case <-said:
			default:
			}
			if _, err := io.WriteString(conn, "\r"); err != nil {
				return err
			}
			select {
			case err := <-cut:
				return fmt.Errorf("the console was cut when it was used: %w", err)
			case <-said:
				return nil
			case <-time.After(time.Minute):
				return errors.New("the guest does not answer")
			}
		}()
	}()
	return done
}

// session is a virtctl with a command that runs in the guest.
type session struct {
	name           string
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	ended          chan error
}

// loseSessions kills virt-api while commands run in the guest by exec and ssh: both say at once that the connection was
// lost, with a code that no command has, and can be run again. key is of a user that the guest lets in.
func (g *guest) loseSessions(t *testing.T, ready func(*testing.T, string, map[string]int32)) {
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	private, signer, err := sshd.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	authorize := fmt.Sprintf("mkdir -p /root/.ssh && echo '%s' >> /root/.ssh/authorized_keys",
		strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))))
	eventually(t, time.Minute, "the guest agent answers", func() string {
		if _, stderr, err := g.Virtctl(t.Context(), nil, "-n", g.ns,
			"exec", g.name, "--", "sh", "-c", authorize); err != nil {
			return fmt.Sprint(err, stderr)
		}
		return ""
	})
	sshTo := []string{
		"ssh", "root@" + g.name, "-i", key, "--known-hosts", filepath.Join(dir, "hosts"),
		"--strict-host-key-checking=accept-new", "--timeout", "1m",
	}
	start := func(name string, args ...string) *session {
		s := &session{name: name, ended: make(chan error, 1)}
		s.cmd = exec.CommandContext(t.Context(), g.Bin("virtctl"),
			append([]string{"--kubeconfig", g.Kubeconfig, "--context", g.Name, "-n", g.ns}, args...)...)
		s.cmd.Env = append(os.Environ(), "SSH_AUTH_SOCK=")
		s.cmd.Stdout, s.cmd.Stderr = &s.stdout, &s.stderr
		if err := s.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { s.ended <- s.cmd.Wait() }()
		return s
	}
	script := func(name string) string { return "echo $$ > /tmp/" + name + "; exec sleep 300" }
	sessions := []*session{
		start("exec", "exec", g.name, "--", "sh", "-c", script("exec")),
		start("ssh", append(sshTo, "-c", script("ssh"))...),
	}
	eventually(t, time.Minute, "both commands run", func() string {
		_, stderr, err := g.Virtctl(t.Context(), nil, "-n", g.ns, "exec", g.name, "--", "cat", "/tmp/exec", "/tmp/ssh")
		if err != nil {
			return instead(stderr)
		}
		return ""
	})
	restarts := map[string]int32{}
	for _, pod := range g.componentPods(t, names.VirtAPI) {
		for _, status := range pod.Status.ContainerStatuses {
			restarts[pod.Name] = status.RestartCount
		}
		kill(t, string(pod.UID), "virt-server")
	}
	for _, s := range sessions {
		select {
		case <-s.ended:
		case <-time.After(time.Minute):
			t.Errorf("%s hangs after virt-api was killed", s.name)
			_ = s.cmd.Process.Kill() // it is waited for below
			<-s.ended
		}
		if code, said := s.cmd.ProcessState.ExitCode(), s.stderr.String(); code != 255 ||
			!strings.Contains(said, "the connection was lost before the command ended") {
			t.Errorf("%s ended with code %d and says %q", s.name, code, said)
		}
	}
	ready(t, names.VirtAPI, restarts)
	for _, args := range [][]string{{"exec", g.name, "--", "echo", "again"}, append(sshTo, "-c", "echo again")} {
		eventually(t, time.Minute, args[0]+" works again", func() string {
			out, stderr, err := g.Virtctl(t.Context(), nil, append([]string{"-n", g.ns}, args...)...)
			if err != nil || strings.TrimSpace(out) != "again" {
				return fmt.Sprintf("%q %s %v", out, stderr, err)
			}
			return ""
		})
	}
	// The guest agent's command has ended with its stream.
	eventually(t, time.Minute, "the command of exec is gone", func() string {
		return strings.TrimSpace(g.virtctl(t, nil, "-n", g.ns, "exec", g.name, "--", "sh",
			"-c", "if kill -0 $(cat /tmp/exec) 2>&1; then echo it still runs; fi | grep -v 'No such' || true"))
	})
}
