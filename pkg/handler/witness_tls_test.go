package handler

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/certs"
)

// identity is a certificate of an authority, as a component follows it.
func identity(t *testing.T, authority certs.Pair, leaf certs.Leaf) *certs.Source {
	t.Helper()
	pair, err := authority.Issue(leaf, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	key, err := pair.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	source := certs.NewSource(fake.NewClientset(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: names.Namespace, Name: "certificate"},
		Data: map[string][]byte{
			corev1.TLSCertKey: pair.CertificatePEM(), corev1.TLSPrivateKeyKey: key,
			certs.CABundleKey: authority.CertificatePEM(),
		},
	}), names.Namespace, "certificate")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-source.Ready():
	case err := <-done:
		t.Fatal(err)
	}
	return source
}

// Nodes speak for each other over mutual TLS: only the virt-handler of a node answers for it, and only virt-handlers
// are answered.
func TestAskOverTLS(t *testing.T) {
	authority, err := certs.NewAuthority(time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := certs.NewAuthority(time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	api := certs.Leaf{CommonName: names.CommonNameAPI}
	for name, c := range map[string]struct {
		authority certs.Pair
		asks      certs.Leaf
		ask       string // the node that is meant
		answered  bool
	}{
		"a virt-handler": {
			authority: authority, asks: certs.HandlerLeaf("n"), ask: "a", answered: true,
		},
		"another node is meant":             {authority: authority, asks: certs.HandlerLeaf("n"), ask: "b"},
		"virt-api":                          {authority: authority, asks: api, ask: "a"},
		"a program in a guest":              {authority: authority, asks: certs.GuestsLeaf("n"), ask: "a"},
		"a virt-handler of another cluster": {authority: foreign, asks: certs.HandlerLeaf("n"), ask: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			others := newPeers(func() time.Duration { return 95 * time.Second }, func() {})
			server := httptest.NewUnstartedServer(forNodes(http.NotFoundHandler(), others))
			server.Listener = tls.NewListener(server.Listener,
				identity(t, authority, certs.HandlerLeaf("a")).ServerConfigForNodes())
			server.Start()
			defer server.Close()
			dialer := &tls.Dialer{Config: identity(t, c.authority, c.asks).HandlerConfig(c.ask)}
			silence, err := askPeer(t.Context(), func(ctx context.Context) (net.Conn, error) {
				return dialer.DialContext(ctx, "tcp", server.Listener.Addr().String())
			}, 15*time.Second)
			switch {
			case c.answered && (err != nil || silence != 95*time.Second || others.period() != 15*time.Second):
				t.Errorf("%s, %v; it beats every %s", silence, err, others.period())
			case !c.answered && (err == nil || len(others.asked) > 0):
				t.Errorf("%s is answered; it has noted %v", silence, others.asked)
			}
		})
	}
}
