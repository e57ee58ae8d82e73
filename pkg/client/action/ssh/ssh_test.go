package ssh

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/virtkit/virtkit/tests/sshd"
)

// machine is a server and a key that may log in.
type machine struct {
	*sshd.Server
	key     ed25519.PrivateKey
	keyFile string
	dir     string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	dir := t.TempDir()
	_, host, err := sshd.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	key, signer, err := sshd.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{
		&sshd.Server{HostKey: host, Keys: []ssh.PublicKey{signer.PublicKey()}, Dir: filepath.Join(dir, "guest")}, key,
		filepath.Join(dir, "key"), dir,
	}
	if err := os.Mkdir(m.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	m.writeKey(t, "")
	return m
}

func (m *machine) writeKey(t *testing.T, passphrase string) {
	t.Helper()
	block, err := ssh.MarshalPrivateKey(m.key, "")
	if passphrase != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(m.key, "", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.keyFile, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
}

// dial is a connection to the machine.
func (m *machine) dial(t *testing.T) net.Conn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		conn, err := l.Accept()
		l.Close()
		if err == nil {
			m.Serve(conn)
		}
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); <-served })
	return conn
}

func (m *machine) login() Login {
	return Login{
		User: "me", Host: "vm.demo.shop", Port: 22, Auth: Auth{Identities: []string{m.keyFile}, Who: "me@demo"},
		Keys: HostKeys{File: filepath.Join(m.dir, "ssh", "known_hosts"), Checking: AcceptNew},
	}
}

func (m *machine) client(t *testing.T) *ssh.Client {
	t.Helper()
	client, err := Connect(t.Context(), m.dial(t), m.login())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// answers is a user who gives these answers in turn.
type answers struct {
	give  []string
	asked []string
}

func (a *answers) next(question string) (string, error) {
	a.asked = append(a.asked, question)
	if len(a.give) == 0 {
		return "", errors.New("no more answers")
	}
	answer := a.give[0]
	a.give = a.give[1:]
	return answer, nil
}

func (a *answers) Secret(question string) (string, error) { return a.next(question) }
func (a *answers) Line(question string) (string, error)   { return a.next(question) }

func TestLogin(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(t *testing.T, m *machine, l *Login)
		give   []string
		asked  string
		err    string
		is     error
	}{
		{name: "key"},
		{name: "default key", change: func(_ *testing.T, m *machine, l *Login) {
			l.Auth.Identities, l.Auth.Defaults = nil, []string{filepath.Join(m.dir, "no-such-key"), m.keyFile}
		}},
		{
			name:   "named key is missing",
			change: func(_ *testing.T, m *machine, l *Login) { l.Auth.Identities = []string{"no-such-key"} },
			err:    "identity file no-such-key: no such file",
		},
		{
			name: "encrypted key", change: func(t *testing.T, m *machine, _ *Login) { m.writeKey(t, "phrase") },
			give: []string{"wrong", "phrase"}, asked: "Enter passphrase for key",
		},
		{
			name:   "encrypted key, nobody to ask",
			change: func(t *testing.T, m *machine, l *Login) { m.writeKey(t, "phrase"); l.Auth.Prompt = nil },
			err:    "it is encrypted, and there is no terminal",
		},
		{name: "agent", change: func(t *testing.T, m *machine, l *Login) {
			m.writeKey(t, "phrase") // the agent has it, nobody is asked
			l.Auth.AgentSocket = serveAgent(t, m.key)
		}},
		{
			name:   "agent is gone",
			change: func(_ *testing.T, m *machine, l *Login) { l.Auth.AgentSocket = filepath.Join(m.dir, "no-agent") },
		},
		{
			name:   "password",
			change: func(_ *testing.T, m *machine, l *Login) { m.Password, l.Auth.Identities = "secret", nil },
			give:   []string{"wrong", "secret"}, asked: "me@demo's password: ",
		},
		{name: "questions", change: func(_ *testing.T, m *machine, l *Login) {
			m.Password, m.Interactive, l.Auth.Identities = "secret", true, nil
		}, give: []string{"secret"}, asked: "(me@demo) What is the [31mword? "},
		{
			name: "denied", change: func(_ *testing.T, m *machine, l *Login) { m.Keys = nil; l.Auth.Prompt = nil },
			is: ErrDenied, err: "me@vm.demo.shop: permission denied (tried publickey)",
		},
		{
			name: "host key, asked", change: func(_ *testing.T, _ *machine, l *Login) { l.Keys.Checking = Ask },
			give: []string{"perhaps", "yes"}, asked: "The authenticity of host 'vm.demo.shop'",
		},
		{
			name: "host key, refused", change: func(_ *testing.T, _ *machine, l *Login) { l.Keys.Checking = Ask },
			give: []string{"no"}, err: "host key verification failed",
		},
		{
			name:   "host key, nobody to ask",
			change: func(_ *testing.T, _ *machine, l *Login) { l.Keys.Checking = Ask; l.Keys.Prompt = nil },
			err:    "trust it with --strict-host-key-checking=accept-new",
		},
		{
			name: "host key, strict", change: func(_ *testing.T, _ *machine, l *Login) { l.Keys.Checking = Strict },
			err: "the host key of vm.demo.shop is not known",
		},
		{
			name:   "host key, no file",
			change: func(_ *testing.T, _ *machine, l *Login) { l.Keys.Checking, l.Keys.File = Strict, "" },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newMachine(t)
			user := &answers{give: test.give}
			l := m.login()
			l.Auth.Prompt, l.Keys.Prompt = user, user
			if test.change != nil {
				test.change(t, m, &l)
			}
			client, err := Connect(t.Context(), m.dial(t), l)
			if err == nil {
				client.Close()
			}
			if test.err == "" && err != nil ||
				test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) ||
				test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("error %v, want %q", err, test.err)
			}
			if test.asked != "" && (len(user.asked) == 0 || !strings.HasPrefix(user.asked[0], test.asked)) ||
				test.asked == "" && test.err == "" && len(user.asked) > 0 {
				t.Errorf("asked %q", user.asked)
			}
		})
	}
}

func serveAgent(t *testing.T, key ed25519.PrivateKey) string {
	t.Helper()
	keyring := agent.NewKeyring()
	if err := keyring.Add(agent.AddedKey{PrivateKey: &key}); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "agent")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer conn.Close()
				if err := agent.ServeAgent(keyring, conn); err != nil && !errors.Is(err, io.EOF) {
					t.Error(err)
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); work.Wait() })
	return socket
}

func TestHostKeyIsRemembered(t *testing.T) {
	m := newMachine(t)
	m.client(t).Close()
	l := m.login()
	l.Keys.Checking = Strict
	data, err := os.ReadFile(l.Keys.File)
	if err != nil || !strings.HasPrefix(string(data), "vm.demo.shop ssh-ed25519 ") {
		t.Fatalf("%q, %v", data, err)
	}
	client, err := Connect(t.Context(), m.dial(t), l)
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
	// Another machine of that name.
	if _, m.HostKey, err = sshd.NewKey(); err != nil {
		t.Fatal(err)
	}
	for _, checking := range []Checking{Strict, AcceptNew, Ask} {
		l.Keys.Checking = checking
		_, err := Connect(t.Context(), m.dial(t), l)
		if changed := (*HostKeyError)(nil); !errors.As(err, &changed) ||
			!strings.Contains(err.Error(), "known_hosts:1 has another") {
			t.Errorf("%s: %v", checking, err)
		}
	}
	l.Keys.Checking = Unchecked
	if client, err = Connect(t.Context(), m.dial(t), l); err != nil {
		t.Fatal(err)
	}
	client.Close()
}

func TestConnectEndsWithItsContext(t *testing.T) {
	ours, theirs := net.Pipe() // never says a thing
	defer theirs.Close()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	go func() { _, _ = io.Copy(io.Discard, theirs) }()
	if _, err := Connect(ctx, ours, newMachine(t).login()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestSession(t *testing.T) {
	m := newMachine(t)
	client := m.client(t)
	run := func(s *Session) (string, string, error) {
		var out, errOut bytes.Buffer
		s.Out, s.Err = &out, &errOut
		err := s.Run(t.Context(), client)
		return out.String(), errOut.String(), err
	}
	var status *StatusError
	for _, code := range []int{1, 42, 255} {
		if _, _, err := run(&Session{Command: fmt.Sprint("exit ", code)}); !errors.As(err, &status) ||
			status.Code != code {
			t.Errorf("code %d: %v", code, err)
		}
	}
	if _, _, err := run(&Session{Command: "exit 0"}); err != nil {
		t.Error(err)
	}
	if out, errOut, err := run(&Session{Command: "both"}); out != "out\n" || errOut != "err\n" || err != nil {
		t.Errorf("%q %q %v", out, errOut, err)
	}
	big := strings.Repeat("0123456789abcdef", 1<<16)
	if out, _, err := run(&Session{Command: "cat", In: strings.NewReader(big)}); out != big || err != nil {
		t.Errorf("%d bytes of %d, %v", len(out), len(big), err)
	}
	signals := make(chan ssh.Signal, 1)
	signals <- ssh.SIGTERM
	if _, _, err := run(&Session{Command: "wait", Signals: signals}); !errors.As(err, &status) || status.Code != 143 ||
		status.Signal != "TERM" {
		t.Errorf("signal: %v", err)
	}
	resize := func(_ context.Context, changed func(int, int)) { changed(120, 40) }
	if out, _, err := run(&Session{
		Command: "size twice", Terminal: true, Term: "vt100", Width: 80, Height: 24, Resizes: resize,
	}); out != "vt100 80x24\n120x40\n" || err != nil {
		t.Errorf("sizes %q %v", out, err)
	}
	in, keys := io.Pipe()
	go func() {
		_, err := io.WriteString(keys, "ab~.c\r~~d\r~.never")
		if err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
	}()
	out, _, err := run(&Session{Terminal: true, Term: "vt100", In: in, StopInput: func() { in.Close() }, Escape: true})
	if err != nil || strings.Contains(out, "never") {
		t.Errorf("escape: %q %v", out, err)
	}
	if _, _, err := run(&Session{Command: "exit 0"}); err == nil {
		t.Error("the connection outlives its end")
	}
	client = m.client(t)
	if _, _, err := run(&Session{Command: "drop"}); !errors.Is(err, ErrLost) {
		t.Error(err)
	}
}

func TestEscapes(t *testing.T) {
	got, err := io.ReadAll(&escapes{from: strings.NewReader("~x~.\r~~.\r~."), atStart: true})
	if string(got) != "~x~.\r~.\r" || !errors.Is(err, errEscaped) {
		t.Errorf("%q %v", got, err)
	}
}

func TestSessionEndsWithItsContext(t *testing.T) {
	m := newMachine(t)
	ctx, cancel := context.WithCancel(t.Context())
	out := writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil })
	if err := (&Session{Command: "wait", Out: out, Err: io.Discard}).Run(ctx, m.client(t)); !errors.Is(err,
		context.Canceled) {
		t.Error(err)
	}
}

// What a guest writes at once, such as its prompt, waits until the terminal is ready for the keys that follow.
func TestNothingIsShownBeforeTheTerminalIsReady(t *testing.T) {
	m := newMachine(t)
	client := m.client(t)
	for range 20 {
		var ready atomic.Bool
		early := writerFunc(func(p []byte) (int, error) {
			if !ready.Load() {
				t.Errorf("%q is shown too early", p)
			}
			return len(p), nil
		})
		s := &Session{Command: "both", Out: early, Err: early, Started: func() {
			// Another command's end is proof that the first one has had time to write.
			other := &Session{Command: "both", Out: io.Discard, Err: io.Discard}
			if err := other.Run(t.Context(), client); err != nil {
				t.Error(err)
			}
			ready.Store(true)
		}}
		if err := s.Run(t.Context(), client); err != nil {
			t.Fatal(err)
		}
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestForwards(t *testing.T) {
	m := newMachine(t)
	client := m.client(t)
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	defer work.Wait()
	defer echo.Close()
	failures := make(chan error, 10)
	f := &Forwarder{Client: client, Failed: func(err error) { failures <- err }}
	defer f.Close()
	start := func(spec Forward) string {
		addr, err := f.Start(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		_, port, err := net.SplitHostPort(addr.String())
		if err != nil {
			t.Fatal(err)
		}
		return net.JoinHostPort("127.0.0.1", port)
	}
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	through := func(name, address string, hello []byte, skip int) {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		defer conn.Close()
		go func() {
			if _, err := conn.Write(append(hello, big...)); err == nil {
				_ = conn.(*net.TCPConn).CloseWrite()
			}
		}()
		got, err := io.ReadAll(conn)
		if err != nil || len(got) < skip || !bytes.Equal(got[skip:], big) {
			t.Errorf("%s: %d bytes of %d, %v", name, len(got), len(big)+skip, err)
		}
	}
	_, port, _ := net.SplitHostPort(echo.Addr().String())
	local := start(Forward{Listen: "127.0.0.1:0", To: echo.Addr().String()})
	through("-L", local, nil, 0)
	through("-R", start(Forward{Remote: true, Listen: "127.0.0.1:0", To: echo.Addr().String()}), nil, 0)
	var n uint16
	fmt.Sscan(port, &n)
	hello := append([]byte{5, 1, 0, 5, 1, 0, 3, 9}, "localhost"...)
	dynamic := start(Forward{Listen: "127.0.0.1:0"})
	through("-D", dynamic, append(hello, byte(n>>8), byte(n)), 12)

	// One that fails is told of, and the next one works.
	dead := start(Forward{Listen: "127.0.0.1:0", To: "127.0.0.1:1"})
	conn, err := net.Dial("tcp", dead)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	conn.Close()
	if err := <-failures; !strings.Contains(err.Error(), "connect to 127.0.0.1:1") {
		t.Error(err)
	}
	through("-L again", local, nil, 0)
}

func TestParseForward(t *testing.T) {
	for text, want := range map[string]Forward{
		"8080:web:80":            {Listen: "localhost:8080", To: "web:80"},
		"*:8080:[::1]:80":        {Listen: ":8080", To: "[::1]:80"},
		"[::1]:8080:10.0.0.1:80": {Listen: "[::1]:8080", To: "10.0.0.1:80"},
		"0:web:80":               {Listen: "localhost:0", To: "web:80"},
	} {
		if got, err := ParseForward(text, false, false); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	if got, err := ParseForward("0.0.0.0:1080", false, true); err != nil || got != (Forward{Listen: "0.0.0.0:1080"}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{
		"", "80", "80:web", "80:web:0", "80:web:x", "x:web:80", "80::80", "[::1:80:web:80", "80:web:70000",
		"a:80:web:80:1",
	} {
		if got, err := ParseForward(text, false, false); err == nil {
			t.Errorf("%q is understood: %+v", text, got)
		}
	}
}
