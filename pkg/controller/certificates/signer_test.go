package certificates

import (
	"context"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/certs"
)

// asked is what the virt-handler of node1 asks for.
func asked(t *testing.T, leaf certs.Leaf) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	_, request, err := leaf.Request()
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "request"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request, SignerName: names.SignerHandler, Usages: leaf.Usages(),
			Username: handlerUser, Extra: map[string]certificatesv1.ExtraValue{extraNode: {"node1"}},
		},
	}
}

// answered is what becomes of a request.
func (i *installation) answered(t *testing.T, request *certificatesv1.CertificateSigningRequest,
) certificatesv1.CertificateSigningRequestStatus {
	t.Helper()
	api := i.client.CertificatesV1().CertificateSigningRequests()
	created, err := api.Create(t.Context(), request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := i.signer.sign(t.Context(), created); err != nil && !strings.Contains(err.Error(), "approved by others") {
		t.Fatal(err)
	}
	found, err := api.Get(t.Context(), request.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return found.Status
}

func TestSign(t *testing.T) {
	for _, leaf := range []certs.Leaf{certs.HandlerLeaf("node1"), certs.GuestsLeaf("node1")} {
		i := newInstallation(t)
		i.keep(t)
		status := i.answered(t, asked(t, leaf))
		if len(status.Conditions) != 1 || status.Conditions[0].Type != certificatesv1.CertificateApproved {
			t.Fatalf("%+v", status)
		}
		chain, err := certs.ParseBundle(status.Certificate)
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(i.bundle(t)))
		usage := x509.ExtKeyUsageServerAuth
		if leaf.ClientOnly {
			usage = x509.ExtKeyUsageClientAuth
		}
		if _, err := chain[0].Verify(x509.VerifyOptions{
			Roots: roots, CurrentTime: i.now, KeyUsages: []x509.ExtKeyUsage{usage},
		}); err != nil {
			t.Error(err)
		}
		if chain[0].Subject.CommonName != leaf.CommonName || chain[0].IsCA ||
			len(chain[0].DNSNames) != len(leaf.DNSNames) {
			t.Errorf("%+v", chain[0])
		}
		if lifetime := chain[0].NotAfter.Sub(i.now); lifetime != certs.DefaultPolicy().LeafLifetime {
			t.Errorf("valid for %s", lifetime)
		}
	}
}

// A broken node asks for another node's certificate, or a component's, or a stranger for any.
func TestSignRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		leaf   certs.Leaf
		change func(*certificatesv1.CertificateSigningRequest)
		says   string
	}{
		"another node": {leaf: certs.HandlerLeaf("node2"), says: "not one of node node1"},
		"its guests":   {leaf: certs.GuestsLeaf("node2"), says: "not one of node node1"},
		"virt-api": {
			leaf: certs.Leaf{CommonName: names.CommonNameAPI, DNSNames: []string{names.DNSNameAPI}},
			says: "not one of node node1",
		},
		"a name too many": {
			leaf: certs.Leaf{
				CommonName: names.HandlerOf("node1"),
				DNSNames:   []string{names.DNSNameHandler, names.DNSNameMetrics, names.DNSNameAPI},
			},
			says: "DNS names",
		},
		"a guest's server": {
			leaf: certs.GuestsLeaf("node1"), says: "usages",
			change: func(r *certificatesv1.CertificateSigningRequest) {
				r.Spec.Usages = append(r.Spec.Usages, certificatesv1.UsageServerAuth)
			},
		},
		"an authority": {
			leaf: certs.HandlerLeaf("node1"), says: "usages",
			change: func(r *certificatesv1.CertificateSigningRequest) {
				r.Spec.Usages = append(r.Spec.Usages, certificatesv1.UsageCertSign)
			},
		},
		"a stranger": {
			leaf: certs.HandlerLeaf("node1"), says: "is not virt-handler",
			change: func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Username = "eve" },
		},
		"a stranger's approval": {
			leaf: certs.HandlerLeaf("node1"),
			change: func(r *certificatesv1.CertificateSigningRequest) {
				r.Spec.Username = "eve"
				condition(r, certificatesv1.CertificateApproved, "Eve", "")
			},
		},
		"no node": {
			leaf: certs.HandlerLeaf("node1"), says: "names no node",
			change: func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Extra = nil },
		},
		"two nodes": {
			leaf: certs.HandlerLeaf("node1"), says: "names no node",
			change: func(r *certificatesv1.CertificateSigningRequest) {
				r.Spec.Extra[extraNode] = []string{"node1", "node2"}
			},
		},
		"nonsense": {
			leaf: certs.HandlerLeaf("node1"), says: "no certificate request",
			change: func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Request = []byte("x") },
		},
		"much": {
			leaf: certs.HandlerLeaf("node1"), says: "bytes",
			change: func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Request = make([]byte, 1<<20) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			i := newInstallation(t)
			i.keep(t)
			request := asked(t, c.leaf)
			if c.change != nil {
				c.change(request)
			}
			status := i.answered(t, request)
			if len(status.Certificate) != 0 {
				t.Error("it was signed")
			}
			if c.says == "" {
				return
			}
			if len(status.Conditions) != 1 || status.Conditions[0].Type != certificatesv1.CertificateDenied ||
				!strings.Contains(status.Conditions[0].Message, c.says) {
				t.Errorf("%+v, want it denied because of %q", status.Conditions, c.says)
			}
		})
	}
}

// A request that comes before there is an authority is signed when there is one, and one of another signer never.
func TestSignerWaits(t *testing.T) {
	i := newInstallation(t)
	api := i.client.CertificatesV1().CertificateSigningRequests()
	foreign := asked(t, certs.HandlerLeaf("node1"))
	foreign.Name, foreign.Spec.SignerName = "foreign", "example.com/x"
	for _, request := range []*certificatesv1.CertificateSigningRequest{asked(t, certs.HandlerLeaf("node1")), foreign} {
		if _, err := api.Create(t.Context(), request, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { i.signer.run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	i.keep(t)
	deadline, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		found, err := api.Get(t.Context(), "request", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(found.Status.Certificate) > 0 {
			break
		}
		select {
		case <-deadline.Done():
			t.Fatalf("not signed: %+v", found.Status)
		case <-tick.C:
		}
	}
	if found, err := api.Get(t.Context(), "foreign", metav1.GetOptions{}); err != nil ||
		len(found.Status.Certificate)+len(found.Status.Conditions) > 0 {
		t.Errorf("%+v, %v", found, err)
	}
}
