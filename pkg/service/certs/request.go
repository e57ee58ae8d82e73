package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

const (
	pemRequest = "CERTIFICATE REQUEST"
	// maxRequest bounds a certificate request that is read, bytes.
	maxRequest = 16 << 10
)

// HandlerLeaf returns the certificate with which the virt-handler of a node serves virt-api, Prometheus and other
// virt-handlers, and calls those.
func HandlerLeaf(node string) Leaf {
	return Leaf{CommonName: names.HandlerOf(node), DNSNames: []string{names.DNSNameHandler, names.DNSNameMetrics}}
}

// GuestsLeaf returns the certificate that the virt-handler of a node shows to programs in guests (vsock). Nothing but
// those takes it.
func GuestsLeaf(node string) Leaf {
	return Leaf{CommonName: names.GuestsOf(node), ClientOnly: true}
}

// LeafOf returns the certificate of a node that has a common name. The error says that the node has no such one.
func LeafOf(node, commonName string) (Leaf, error) {
	for _, leaf := range []Leaf{HandlerLeaf(node), GuestsLeaf(node)} {
		if leaf.CommonName == commonName {
			return leaf, nil
		}
	}
	return Leaf{}, fmt.Errorf("common name %q is not one of node %s", commonName, node)
}

// HandlerNode returns the node of the virt-handler that the other end of a connection has shown the certificate of,
// which was checked; empty when it is no virt-handler's.
func HandlerNode(state *tls.ConnectionState) string {
	if state == nil || len(state.PeerCertificates) == 0 {
		return ""
	}
	return names.NodeOfHandler(state.PeerCertificates[0].Subject.CommonName)
}

// Usages returns the usages to ask for in a CertificateSigningRequest.
func (l Leaf) Usages() []certificatesv1.KeyUsage {
	usages := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	if !l.ClientOnly {
		usages = append(usages, certificatesv1.UsageServerAuth)
	}
	return usages
}

// Request makes a key and the PEM of a request for its certificate.
func (l Leaf) Request() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make key for %q: %w", l.CommonName, err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: l.CommonName}, DNSNames: l.DNSNames,
	}, key)
	if err != nil {
		return nil, nil, fmt.Errorf("make certificate request for %q: %w", l.CommonName, err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: pemRequest, Bytes: der}), nil
}

// ParseRequest reads the PEM of a request for a certificate of a node, and checks that it asks for nothing else. It
// returns the certificate that it is for, and the key.
func ParseRequest(data []byte, node string) (Leaf, *ecdsa.PublicKey, error) {
	if len(data) > maxRequest {
		return Leaf{}, nil, fmt.Errorf("the request has %d bytes", len(data))
	}
	block, _ := pem.Decode(data)
	if block == nil || block.Type != pemRequest {
		return Leaf{}, nil, errors.New("no certificate request in PEM data")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return Leaf{}, nil, fmt.Errorf("parse certificate request: %w", err)
	}
	if err := request.CheckSignature(); err != nil {
		return Leaf{}, nil, fmt.Errorf("check the request's signature: %w", err)
	}
	key, ok := request.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return Leaf{}, nil, errors.New("the key is not an ECDSA key on curve P-256")
	}
	leaf, err := LeafOf(node, request.Subject.CommonName)
	switch {
	case err != nil:
		return Leaf{}, nil, err
	case len(request.Subject.Names) != 1:
		return Leaf{}, nil, fmt.Errorf("the subject is %q, want a common name and nothing else", request.Subject)
	case !slices.Equal(request.DNSNames, leaf.DNSNames):
		return Leaf{}, nil, fmt.Errorf("the DNS names are %q, want %q", request.DNSNames, leaf.DNSNames)
	case len(request.IPAddresses)+len(request.EmailAddresses)+len(request.URIs) > 0:
		return Leaf{}, nil, errors.New("there are other names than DNS names")
	}
	return leaf, key, nil
}
