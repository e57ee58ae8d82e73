package virtapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/server/options"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/certs"
)

// startServer runs virt-api's server as it is but for the cluster behind it, and gives its address and a client that
// trusts it.
func startServer(t *testing.T, callers *callers) (address string, config *tls.Config) {
	t.Helper()
	_, secret := issue(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	authentication, authorization := options.NewDelegatingAuthenticationOptions(),
		options.NewDelegatingAuthorizationOptions()
	authentication.RemoteKubeConfigFileOptional, authorization.RemoteKubeConfigFileOptional = true, true
	authentication.SkipInClusterLookup = true
	authentication.ClientCert.ClientCA = filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(authentication.ClientCert.ClientCA, secret.Data[certs.CABundleKey], 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := newServer(serving{
		listener, newCertificate(source(t, secret)), authentication, authorization, options.NewAuditOptions(), callers,
		http.NotFoundHandler(),
	}, &requests{}, hooks)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := server.PrepareRun().RunWithContext(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(secret.Data[certs.CABundleKey])
	return listener.Addr().String(),
		&tls.Config{RootCAs: roots, ServerName: names.DNSNameAPI, MinVersion: tls.VersionTLS13}
}

// reviewOf is an AdmissionReview of a VM, as the API server posts it.
func reviewOf(t testing.TB) []byte {
	t.Helper()
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "1", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: toJSON(t, goodMachine)},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

const validateMachines = "/validate/virtualmachines"

// admit posts a review and gives the answer's code and body.
func admit(client *http.Client, address string, body []byte) (int, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // as manifests/base/webhooks.yaml says
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address+validateMachines+"?timeout=10s",
		bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	response, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, string(answer), err
}

func newClient(t *testing.T, config *tls.Config, http2 bool) *http.Client {
	transport := &http.Transport{TLSClientConfig: config.Clone(), ForceAttemptHTTP2: http2}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// hang posts the beginnings of bodies over a connection each.
func hang(t *testing.T, address string, config *tls.Config, n int) {
	t.Helper()
	start := []byte(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: virt-api\r\nContent-Type: application/json\r\n"+
		"Content-Length: 100000\r\n\r\n{", validateMachines))
	for range n {
		conn, err := tls.Dial("tcp", address, config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := conn.Write(start); err != nil {
			t.Fatal(err)
		}
	}
}

// hang2 posts the beginnings of bodies over as few connections as HTTP/2 needs.
func hang2(t *testing.T, address string, config *tls.Config, n int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var posting sync.WaitGroup
	t.Cleanup(func() { cancel(); posting.Wait() })
	var writing sync.WaitGroup
	clients := []*http.Client{newClient(t, config, true), newClient(t, config, true), newClient(t, config, true)}
	for i := range n {
		body, pipe := io.Pipe()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address+validateMachines, body)
		if err != nil {
			t.Fatal(err)
		}
		posting.Go(func() {
			response, err := clients[i%len(clients)].Do(r)
			body.Close()
			if err == nil { // it was refused to make room
				response.Body.Close()
			}
		})
		writing.Go(func() { _, _ = pipe.Write([]byte("{")) }) // the transport may have given up
	}
	writing.Wait()
}

// 260 posts whose bodies do not end took all slots for requests, and no VM was admitted any more.
func TestUnfinishedPostsDoNotBlockAdmission(t *testing.T) {
	for name, begin := range map[string]func(*testing.T, string, *tls.Config, int){"HTTP/1.1": hang, "HTTP/2": hang2} {
		t.Run(name, func(t *testing.T) {
			address, config := startServer(t, nil)
			begin(t, address, config, 260)
			body := reviewOf(t)
			var admitting sync.WaitGroup
			for i := range 40 {
				client := newClient(t, config, i%2 == 0)
				admitting.Go(func() {
					code, answer, err := admit(client, address, body)
					if err != nil || code != http.StatusOK || !strings.Contains(answer, `"allowed":true`) {
						t.Errorf("a whole review got %d %s, %v", code, answer, err)
					}
				})
			}
			admitting.Wait()
		})
	}
}

// A body that does not go on is ended after a while, and one that is too long at once.
func TestBodiesAreBounded(t *testing.T) {
	w := newWebhooks(hooks, nil, func(string) {})
	w.bodyTime = 100 * time.Millisecond
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	front := &http.Server{Handler: w.before(http.NotFoundHandler())}
	go func() { defer close(served); _ = front.Serve(server) }()
	t.Cleanup(func() { front.Close(); <-served })
	post := func(length int, body string) string {
		conn, err := net.Dial("tcp", server.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		go fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", validateMachines, length,
			body)
		answer, err := io.ReadAll(conn)
		if err != nil && len(answer) == 0 {
			t.Fatal(err)
		}
		line, _, _ := strings.Cut(string(answer), "\r\n")
		return line
	}
	if got := post(1000, "{"); !strings.Contains(got, "504") {
		t.Errorf("a body that does not go on got %q", got)
	}
	w.bodyTime = 10 * time.Second
	if got := post(maxReview+1, strings.Repeat(" ", maxReview+1)); !strings.Contains(got, "413") {
		t.Errorf("a body that is too long got %q", got)
	}
}

// What is held of bodies together is bounded; the source that holds most gives way.
func TestBodiesMakeRoom(t *testing.T) {
	b := newBodies(3, 1000)
	begun := func(source string) *body {
		one := &body{source: source, cut: func() {}}
		b.begin(one)
		return one
	}
	old, greedy, more := begun("a"), begun("b"), begun("b")
	honest := begun("c")
	if old.isCut || !greedy.isCut || more.isCut || honest.isCut {
		t.Errorf("cut: %v %v %v %v; want the oldest of the source that has most", old.isCut, greedy.isCut, more.isCut,
			honest.isCut)
	}
	if !b.hold(old, 900) || !b.hold(honest, 500) || !old.isCut || honest.isCut {
		t.Errorf("too much: old cut %v, new cut %v", old.isCut, honest.isCut)
	}
	if !b.hold(more, 10) || b.hold(honest, 600) || !more.isCut {
		t.Error("more than the limit is held")
	}
	for _, one := range []*body{old, greedy, more, honest} {
		b.end(one)
	}
	if b.held != 0 || len(b.open) != 0 {
		t.Errorf("%d bytes and %d bodies are left", b.held, len(b.open))
	}
}

// A source that has all its turns waits for one of them, and others do not; a call that is given up waits no longer.
func TestTurnsOfOneSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(4, 2)
		take := func(ctx context.Context, source string) (end func(), done chan error) {
			done = make(chan error, 1)
			var give func()
			go func() {
				var err error
				give, err = turns.take(ctx, source)
				done <- err
			}()
			synctest.Wait()
			return func() { give() }, done
		}
		taken := func(what string, done chan error) {
			t.Helper()
			select {
			case err := <-done:
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			default:
				t.Fatalf("%s waits", what)
			}
		}
		first, done := take(t.Context(), "a")
		taken("the first", done)
		second, done := take(t.Context(), "a")
		taken("the second", done)
		given, cancel := context.WithCancel(t.Context())
		_, abandoned := take(given, "a")
		third, waits := take(t.Context(), "a")
		if len(abandoned)+len(waits) > 0 {
			t.Fatal("a source has more turns than one may")
		}
		other, done := take(t.Context(), "b")
		taken("another source", done)
		cancel()
		if err := <-abandoned; !errors.Is(err, context.Canceled) {
			t.Errorf("a call that was given up: %v", err)
		}
		first()
		synctest.Wait()
		taken("the third, after the first", waits)
		for _, end := range []func(){second, third, other} {
			end()
		}
		if len(turns.of) != 0 || len(turns.all) != 0 {
			t.Errorf("%d sources and %d turns are left", len(turns.of), len(turns.all))
		}
	})
}

// With names given, only a certificate for one of them calls webhooks.
func TestWebhookClients(t *testing.T) {
	now := time.Now()
	trusted, err := certs.NewAuthority(now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	other, err := certs.NewAuthority(now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	certificate := func(authority certs.Pair, name string) *tls.Certificate {
		leaf, err := authority.Issue(certs.Leaf{CommonName: name}, now, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		key, err := leaf.KeyPEM()
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.X509KeyPair(leaf.CertificatePEM(), key)
		if err != nil {
			t.Fatal(err)
		}
		return &pair
	}
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("names", "kube-apiserver-webhooks\n")
	write("ca.crt", string(trusted.CertificatePEM()))
	address, config := startServer(t, newCallers(dir))
	for _, test := range []struct {
		name        string
		certificate *tls.Certificate
		code        int
	}{
		{"the API server", certificate(trusted, "kube-apiserver-webhooks"), http.StatusOK},
		{"without a certificate", nil, http.StatusUnauthorized},
		{"another name", certificate(trusted, "somebody"), http.StatusForbidden},
		{"another authority", certificate(other, "kube-apiserver-webhooks"), http.StatusForbidden},
	} {
		t.Run(test.name, func(t *testing.T) {
			with := config.Clone()
			if test.certificate != nil {
				with.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
					return test.certificate, nil
				}
			}
			code, answer, err := admit(newClient(t, with, true), address, reviewOf(t))
			if err != nil || code != test.code {
				t.Errorf("got %d %s, %v; want %d", code, answer, err, test.code)
			}
		})
	}
	t.Run("no names are no open door", func(t *testing.T) {
		c := newCallers(dir)
		write("names", " \n")
		if _, err := c.check(t.Context(), nil); err == nil {
			t.Error("anybody may call")
		}
		if err := os.Remove(filepath.Join(dir, "names")); err != nil {
			t.Fatal(err)
		}
		c.until = time.Time{}
		if identified, err := c.check(t.Context(), nil); err != nil || identified {
			t.Errorf("without a list: %v, %v", identified, err)
		}
	})
}

// Connections over which nobody has shown who they are end when there are too many, those of the source that has most
// first.
func TestStrangersAreBounded(t *testing.T) {
	listener := &addressed{conns: make(chan net.Conn, 1)}
	g := newGate(listener, 4, 3)
	connect := func(remote string) *stranger {
		listener.conns <- &addressedConn{remote: remote}
		conn, err := g.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return conn.(*stranger)
	}
	closed := func(s *stranger) bool { return s.Conn.(*addressedConn).closed }
	apiServer := connect("10.0.0.1:1")
	known := connect("10.0.0.9:1")
	g.known(known.remote)
	first := connect("10.0.0.9:2")
	for i := range 3 {
		connect(fmt.Sprintf("10.0.0.9:%d", 10+i))
	}
	if !closed(first) || closed(known) || closed(apiServer) {
		t.Errorf("too many of a source: its first ended %v, a known one %v, another's %v", closed(first), closed(known),
			closed(apiServer))
	}
	connect("10.0.0.2:1")
	if closed(apiServer) || len(g.strangers) != 4 {
		t.Errorf("too many in all: the first of a source with few ended %v, %d are left", closed(apiServer),
			len(g.strangers))
	}
	for len(g.strangers) > 0 {
		if err := g.strangers[0].Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(g.of) != 0 {
		t.Errorf("sources are left: %v", g.of)
	}
}

type addressed struct {
	net.Listener
	conns chan net.Conn
}

func (l *addressed) Accept() (net.Conn, error) { return <-l.conns, nil }

type addressedConn struct {
	net.Conn
	remote string
	closed bool
}

func (c *addressedConn) RemoteAddr() net.Addr { return address(c.remote) }
func (c *addressedConn) Close() error         { c.closed = true; return nil }

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// A virt-api that has just begun does not know the cluster's authorities yet: a call waits for them, and that they were
// not known is not remembered.
func TestAuthoritiesComeLater(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "names"), []byte("apiserver"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCallers(dir)
	asked := 0
	c.cluster = func() (x509.VerifyOptions, bool) {
		asked++
		return x509.VerifyOptions{}, asked > 2
	}
	if _, err := c.check(t.Context(), nil); !apierrors.IsUnauthorized(err) {
		t.Errorf("%v; want that a certificate is missing, after %d questions", err, asked)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	c = newCallers(dir)
	if _, err := c.check(gone, nil); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("whoever waits no longer: %v", err)
	}
}
