// Package certs provides TLS between virtkit's components, from one certificate authority.
//
// It has four parts. Issuing (this file) makes authorities and certificates: pure but for the
// random numbers. Rotation (rotation.go) decides what is to be renewed now, so that no peer ever
// meets a certificate whose authority it does not know yet; virt-controller applies it to Secrets
// (pkg/controller/certificates). A Source (source.go) is the other end: each component watches its
// own Secret through the API with one, and gets TLS configurations that follow it without a restart.
// virt-handler has no Secret: it makes a key on its node and asks virt-controller to sign a
// certificate with the node's name (request.go, node.go).
package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// skew is how far before its making a certificate is valid, for peers whose clocks are behind.
const skew = 5 * time.Minute

const (
	pemCertificate = "CERTIFICATE"
	pemPrivateKey  = "PRIVATE KEY"
)

// Pair is a certificate with its private key.
type Pair struct {
	Certificate *x509.Certificate
	Key         *ecdsa.PrivateKey
}

// Leaf says what a certificate is for. It serves for both ends of a connection, or for calling only.
type Leaf struct {
	CommonName string
	DNSNames   []string
	ClientOnly bool
}

// NewAuthority makes a self-signed authority, valid from now for lifetime.
func NewAuthority(now time.Time, lifetime time.Duration) (Pair, error) {
	template := &x509.Certificate{
		// The time distinguishes two generations in a dump of a bundle.
		Subject:               pkix.Name{CommonName: fmt.Sprintf("kubevirt.io@%d", now.Unix())},
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make certificate authority: %w", err)
	}
	certificate, err := sign(template, &key.PublicKey, Pair{Certificate: template, Key: key}, now, lifetime)
	if err != nil {
		return Pair{}, fmt.Errorf("make certificate authority: %w", err)
	}
	return Pair{Certificate: certificate, Key: key}, nil
}

// Issue makes a certificate signed by the authority, valid from now for lifetime, but never
// beyond the authority's own end.
func (authority Pair) Issue(leaf Leaf, now time.Time, lifetime time.Duration) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make key for %q: %w", leaf.CommonName, err)
	}
	certificate, err := authority.Sign(leaf, &key.PublicKey, now, lifetime)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Certificate: certificate, Key: key}, nil
}

// Sign issues a certificate as Issue does, for a key that somebody else has.
func (authority Pair) Sign(
	leaf Leaf, key *ecdsa.PublicKey, now time.Time, lifetime time.Duration,
) (*x509.Certificate, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: leaf.CommonName},
		DNSNames:    leaf.DNSNames,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if !leaf.ClientOnly {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if left := authority.Certificate.NotAfter.Sub(now); left < lifetime {
		lifetime = left
	}
	certificate, err := sign(template, key, authority, now, lifetime)
	if err != nil {
		return nil, fmt.Errorf("issue certificate for %q: %w", leaf.CommonName, err)
	}
	return certificate, nil
}

func sign(
	template *x509.Certificate, key *ecdsa.PublicKey, signer Pair, now time.Time, lifetime time.Duration,
) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial.Add(serial, big.NewInt(1))
	template.NotBefore = now.Add(-skew).UTC()
	template.NotAfter = now.Add(lifetime).UTC()
	der, err := x509.CreateCertificate(rand.Reader, template, signer.Certificate, key, signer.Key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// CertificatePEM returns the certificate as PEM.
func (p Pair) CertificatePEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: p.Certificate.Raw})
}

// KeyPEM returns the private key as PKCS #8 PEM.
func (p Pair) KeyPEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(p.Key)
	if err != nil {
		return nil, fmt.Errorf("encode private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemPrivateKey, Bytes: der}), nil
}

// ParsePair reads what CertificatePEM and KeyPEM wrote and checks that they belong together.
func ParsePair(certificatePEM, keyPEM []byte) (Pair, error) {
	certificates, err := ParseBundle(certificatePEM)
	if err != nil {
		return Pair{}, err
	}
	block, _ := pem.Decode(keyPEM)
	if block == nil {
		return Pair{}, errors.New("no private key in PEM data")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return Pair{}, fmt.Errorf("parse private key: %w", err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return Pair{}, fmt.Errorf("private key is %T, want an ECDSA key", parsed)
	}
	if !key.PublicKey.Equal(certificates[0].PublicKey) {
		return Pair{}, errors.New("private key does not belong to the certificate")
	}
	return Pair{Certificate: certificates[0], Key: key}, nil
}

// EncodeBundle writes certificates one after the other as PEM.
func EncodeBundle(certificates []*x509.Certificate) []byte {
	var out bytes.Buffer
	for _, certificate := range certificates {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: certificate.Raw}))
	}
	return out.Bytes()
}

// ParseBundle reads certificates from PEM; there must be at least one.
func ParseBundle(data []byte) ([]*x509.Certificate, error) {
	var certificates []*x509.Certificate
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != pemCertificate {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse certificate: %w", err)
		}
		certificates = append(certificates, certificate)
	}
	if len(certificates) == 0 {
		return nil, errors.New("no certificate in PEM data")
	}
	return certificates, nil
}
