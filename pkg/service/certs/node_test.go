package certs

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtkit/virtkit/pkg/names"
)

// signing is an API server whose requests are signed at once by an authority.
type signing struct {
	*fake.Clientset
	asked     atomic.Int32
	authority atomic.Pointer[Pair]
	refuse    atomic.Bool
	ahead     atomic.Int64 // of the clock, nanoseconds
}

func (s *signing) now() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }

func newSigning(t *testing.T) *signing {
	t.Helper()
	s := &signing{Clientset: fake.NewClientset()}
	s.PrependReactor("create", "certificatesigningrequests",
		func(action clienttesting.Action) (bool, runtime.Object, error) {
			request := action.(clienttesting.CreateAction).GetObject().(*certificatesv1.CertificateSigningRequest)
			request.Name = fmt.Sprintf("%s%d", request.GenerateName, s.asked.Add(1))
			if s.refuse.Load() {
				request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
					{Type: certificatesv1.CertificateDenied, Reason: "Not", Message: "you"},
				}
				return false, nil, nil
			}
			for _, node := range []string{"node1", "node2"} {
				leaf, key, err := ParseRequest(request.Spec.Request, node)
				if err != nil {
					continue
				}
				certificate, err := s.authority.Load().Sign(leaf, key, s.now(), time.Hour)
				if err != nil {
					return true, nil, err
				}
				request.Status.Certificate = pem.EncodeToMemory(&pem.Block{
					Type: pemCertificate, Bytes: certificate.Raw,
				})
			}
			return false, nil, nil
		})
	s.trust(t, s.renew(t))
	return s
}

// renew makes another authority.
func (s *signing) renew(t *testing.T) Pair {
	t.Helper()
	authority, err := NewAuthority(time.Now(), 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	s.authority.Store(&authority)
	return authority
}

func (s *signing) trust(t *testing.T, authority Pair) {
	t.Helper()
	bundle := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: names.Namespace, Name: names.CABundle},
		Data:       map[string]string{names.CABundleKey: string(authority.CertificatePEM())},
	}
	api := s.CoreV1().ConfigMaps(names.Namespace)
	_, err := api.Create(t.Context(), bundle, metav1.CreateOptions{})
	if err != nil {
		_, err = api.Update(t.Context(), bundle, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// source is that of a node's certificate, which is kept in a file; it runs.
func (s *signing) source(t *testing.T, leaf Leaf, file string) *Source {
	t.Helper()
	source := NewNodeSource(NodeCertificate{
		Client: s, Namespace: names.Namespace, Leaf: leaf, File: file, Policy: DefaultPolicy, Now: s.now,
	})
	run(t, source)
	return source
}

// ready is source, with a certificate.
func (s *signing) ready(t *testing.T, leaf Leaf) *Source {
	t.Helper()
	source := s.source(t, leaf, filepath.Join(t.TempDir(), "node.pem"))
	wait(t, "certificate of "+leaf.CommonName, source.Ready())
	return source
}

func refused(t *testing.T, what string, server, client *tls.Config) {
	t.Helper()
	if clientErr, serverErr := handshake(t, server, client); clientErr == nil && serverErr == nil {
		t.Errorf("%s: handshake succeeded", what)
	}
}

func accepted(t *testing.T, what string, server, client *tls.Config) {
	t.Helper()
	if clientErr, serverErr := handshake(t, server, client); errors.Join(clientErr, serverErr) != nil {
		t.Errorf("%s: client %v, server %v", what, clientErr, serverErr)
	}
}

// Whoever has a node has one certificate: it serves as that node's virt-handler, and as nobody else.
func TestNodeCertificates(t *testing.T) {
	s := newSigning(t)
	one, two := s.ready(t, HandlerLeaf("node1")), s.ready(t, HandlerLeaf("node2"))
	secretOf := func(leaf Leaf) *Source {
		state := State{Signer: s.authority.Load(), Leaves: map[string]Pair{}}
		var err error
		if state.Leaves["x"], err = state.Signer.Issue(leaf, time.Now(), time.Hour); err != nil {
			t.Fatal(err)
		}
		state.Trusted = append(state.Trusted, state.Signer.Certificate)
		source := NewSource(fake.NewClientset(secret(t, state, "x")), "kubevirt", "x")
		run(t, source)
		wait(t, "certificate", source.Ready())
		return source
	}
	api := secretOf(Leaf{CommonName: names.CommonNameAPI, DNSNames: []string{names.DNSNameAPI, names.DNSNameMetrics}})
	shared := secretOf(Leaf{CommonName: names.CommonNameHandler, DNSNames: []string{names.DNSNameHandler}})

	accepted(t, "virt-api dials node1", one.ServerConfig(names.CommonNameAPI), api.HandlerConfig("node1"))
	refused(t, "node2 answers virt-api for node1", two.ServerConfig(names.CommonNameAPI), api.HandlerConfig("node1"))
	refused(t, "the certificate of earlier versions answers for node1", shared.ServerConfig(names.CommonNameAPI),
		api.HandlerConfig("node1"))
	refused(t, "virt-api answers for node1", api.ServerConfig(), api.HandlerConfig("node1"))
	refused(t, "node2 commands node1", one.ServerConfig(names.CommonNameAPI), two.HandlerConfig("node1"))
	refused(t, "node1 answers for virt-api", one.ServerConfig(), two.ClientConfig(names.DNSNameAPI))

	accepted(t, "node2 sends node1 a guest", one.ServerConfigForNodes(), two.HandlerConfig("node1"))
	refused(t, "node2 answers for node1", two.ServerConfigForNodes(), two.HandlerConfig("node1"))
	refused(t, "virt-api sends node1 a guest", one.ServerConfigForNodes(), api.HandlerConfig("node1"))
	refused(t, "the certificate of earlier versions sends a guest", one.ServerConfigForNodes(),
		shared.HandlerConfig("node1"))
}

// What a guest is shown over vsock it can pass on to any port of the installation: none takes it.
func TestGuestsCertificate(t *testing.T) {
	s := newSigning(t)
	handler, guests := s.ready(t, HandlerLeaf("node1")), s.ready(t, GuestsLeaf("node2"))
	guest := guests.ClientConfig("")
	guest.VerifyConnection = nil
	refused(t, "as virt-api", handler.ServerConfig(names.CommonNameAPI), guest)
	refused(t, "as a virt-handler", handler.ServerConfigForNodes(), guest)
	refused(t, "as a server", guests.ServerConfig(), handler.ClientConfig(names.DNSNameHandler))

	// A program in the guest can tell that it is its node.
	material, err := guests.Current()
	if err != nil {
		t.Fatal(err)
	}
	accepted(t, "in the guest", &tls.Config{
		Certificates: []tls.Certificate{material.certificate}, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: material.roots,
	}, guest)
}

func TestHandlerNode(t *testing.T) {
	for commonName, want := range map[string]string{
		names.HandlerOf("node1"): "node1", names.CommonNameHandler: "", names.CommonNameAPI: "",
		names.GuestsOf("node1"): "", "": "",
	} {
		if got := names.NodeOfHandler(commonName); got != want {
			t.Errorf("%q is of node %q, want %q", commonName, got, want)
		}
	}
	if HandlerNode(nil) != "" || HandlerNode(&tls.ConnectionState{}) != "" {
		t.Error("a connection without a certificate is a virt-handler's")
	}
}

// The key stays on the node over restarts, readable by root alone; what is of another node or authority is not used.
func TestNodeCertificateKept(t *testing.T) {
	s := newSigning(t)
	file := filepath.Join(t.TempDir(), "certificates", "node.pem")
	certificate := func(leaf Leaf) string {
		t.Helper()
		ctx, stop := context.WithCancel(t.Context())
		source := NewNodeSource(NodeCertificate{
			Client: s, Namespace: names.Namespace, Leaf: leaf, File: file, Policy: DefaultPolicy, Now: time.Now,
		})
		done := make(chan error, 1)
		go func() { done <- source.Run(ctx) }()
		wait(t, "certificate", source.Ready())
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		material, err := source.Current()
		if err != nil {
			t.Fatal(err)
		}
		return string(material.CertificatePEM)
	}
	first := certificate(HandlerLeaf("node1"))
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	if again := certificate(HandlerLeaf("node1")); again != first || s.asked.Load() != 1 {
		t.Errorf("a restart asked for another certificate: %d", s.asked.Load())
	}
	if other := certificate(HandlerLeaf("node2")); other == first || s.asked.Load() != 2 {
		t.Error("another node's certificate was used")
	}
	s.trust(t, s.renew(t))
	if other := certificate(HandlerLeaf("node2")); other == first || s.asked.Load() != 3 {
		t.Error("another authority's certificate was used")
	}
	if err := os.WriteFile(file, []byte("scribble"), 0o600); err != nil {
		t.Fatal(err)
	}
	certificate(HandlerLeaf("node2"))
	if s.asked.Load() != 4 {
		t.Error("a broken file was used")
	}
}

// A certificate is renewed before its end, and when its authority is trusted no more.
func TestNodeCertificateRenewed(t *testing.T) {
	s := newSigning(t)
	source := s.ready(t, HandlerLeaf("node1"))
	changed := make(chan struct{}, 10)
	source.OnChange(func() { changed <- struct{}{} })
	current := func() *Material {
		t.Helper()
		material, err := source.Current()
		if err != nil {
			t.Fatal(err)
		}
		return material
	}
	first := current()
	s.ahead.Store(int64(40 * time.Minute))
	s.trust(t, *s.authority.Load()) // has it look
	for string(current().CertificatePEM) == string(first.CertificatePEM) {
		wait(t, "renewal", changed)
	}
	next := s.renew(t)
	s.trust(t, next)
	for trusts(next.CertificatePEM(), current().certificate.Leaf, s.now()) != nil {
		wait(t, "a certificate of the next authority", changed)
	}
	if asked := s.asked.Load(); asked != 3 {
		t.Errorf("%d were asked for, want 3", asked)
	}
}

// A refusal is told, and asked again later.
func TestNodeCertificateRefused(t *testing.T) {
	s := newSigning(t)
	s.refuse.Store(true)
	source := s.source(t, HandlerLeaf("node1"), filepath.Join(t.TempDir(), "node.pem"))
	if _, err := source.Current(); err == nil || !strings.Contains(err.Error(), "has not been answered") {
		t.Errorf("%v", err)
	}
	s.refuse.Store(false)
	wait(t, "certificate", source.Ready())
}
