// Package pki makes an instance's certificates and keys: one CA for everybody who talks to the
// cluster, one for the API server's calls to aggregated API servers, and the key that signs service
// account tokens. Ensure makes what is missing and leaves the rest alone, so it can run at every `up`.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
)

// lifetime of every certificate: longer than such a cluster lives.
const lifetime = 10 * 365 * 24 * time.Hour

// renewBefore is how long before its end a certificate is replaced.
const renewBefore = 30 * 24 * time.Hour

// Names of authorities, and of certificates that others refer to. The files are <name>.crt and
// <name>.key.
const (
	CA             = "ca"
	FrontProxyCA   = "front-proxy-ca"
	FrontProxy     = "front-proxy-client"
	APIServer      = "apiserver"
	KubeletClient  = "apiserver-kubelet-client"
	Webhooks       = "apiserver-webhooks"
	Admin          = "admin"
	Controllers    = "kube-controller-manager"
	Scheduler      = "kube-scheduler"
	Proxy          = "kube-proxy"
	Multus         = "multus"
	Provisioner    = "local-provisioner"
	ServiceAccount = "service-account"
)

// WebhooksUser is who the API server is to virt-api when it calls its webhooks.
const WebhooksUser = "kube-apiserver-webhooks"

// MultusUser is who Multus is to the API server, on all nodes.
const MultusUser = "virt-local:multus"

// Certificate says who is to be certified for what.
type Certificate struct {
	// Name is the files' name.
	Name         string
	Authority    string
	CommonName   string
	Organization []string
	DNSNames     []string
	IPs          []string
	// Server allows it to serve; all may call.
	Server bool
}

// ControlPlane returns the certificates of a control plane that is reached at serverIPs.
func ControlPlane(serverIPs ...string) []Certificate {
	return []Certificate{
		{
			Name: APIServer, Authority: CA, CommonName: "kube-apiserver", Server: true,
			IPs: append([]string{"127.0.0.1"}, serverIPs...),
			DNSNames: []string{
				"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
				"kubernetes.default.svc.cluster.local",
			},
		},
		{
			Name: KubeletClient, Authority: CA, CommonName: "kube-apiserver-kubelet-client",
			Organization: []string{"system:masters"},
		},
		{Name: Webhooks, Authority: CA, CommonName: WebhooksUser},
		{Name: Admin, Authority: CA, CommonName: "virt-local-admin", Organization: []string{"system:masters"}},
		{Name: Controllers, Authority: CA, CommonName: "system:kube-controller-manager"},
		{Name: Scheduler, Authority: CA, CommonName: "system:kube-scheduler"},
		{Name: Proxy, Authority: CA, CommonName: "system:kube-proxy"},
		{Name: Multus, Authority: CA, CommonName: MultusUser},
		{
			Name: Provisioner, Authority: CA, CommonName: "virt-local:provisioner",
			Organization: []string{"system:masters"},
		},
		{Name: FrontProxy, Authority: FrontProxyCA, CommonName: "front-proxy-client"},
	}
}

// Node returns the certificates of one node: its identity and what its kubelet serves with.
func Node(name string, ips ...string) []Certificate {
	return []Certificate{
		{Name: name, Authority: CA, CommonName: "system:node:" + name, Organization: []string{"system:nodes"}},
		{
			Name: name + "-server", Authority: CA, CommonName: "system:node:" + name, Server: true,
			DNSNames: []string{name}, IPs: append(slices.Clone(ips), "127.0.0.1"),
		},
	}
}

// Dir is a directory of certificates and keys.
type Dir struct {
	Path string
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Crt and Key are the files of a certificate.
func (d Dir) Crt(name string) string { return filepath.Join(d.Path, name+".crt") }

// Key returns the private key's file of a certificate.
func (d Dir) Key(name string) string { return filepath.Join(d.Path, name+".key") }

// Ensure makes the authorities, the service account key pair (service-account.key and .pub) and the
// certificates that are missing, do not say what is wanted, or end soon.
func (d Dir) Ensure(certs []Certificate) error {
	if d.Now == nil {
		d.Now = time.Now
	}
	if err := os.MkdirAll(d.Path, 0o700); err != nil {
		return fmt.Errorf("make certificates: %w", err)
	}
	for _, name := range []string{CA, FrontProxyCA} {
		if err := d.ensureAuthority(name); err != nil {
			return fmt.Errorf("make certificate authority %s: %w", name, err)
		}
	}
	if err := d.ensureServiceAccountKey(); err != nil {
		return fmt.Errorf("make service account key: %w", err)
	}
	for _, c := range certs {
		if err := d.ensure(c); err != nil {
			return fmt.Errorf("make certificate %s: %w", c.Name, err)
		}
	}
	return nil
}

func (d Dir) ensureAuthority(name string) error {
	if crt, _, err := d.load(name); err == nil && crt.NotAfter.After(d.Now().Add(renewBefore)) {
		return nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	t, err := d.template()
	if err != nil {
		return err
	}
	t.Subject = pkix.Name{CommonName: "virt-local " + name}
	t.IsCA, t.BasicConstraintsValid = true, true
	t.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	return d.write(name, t, t, key, key)
}

func (d Dir) ensure(c Certificate) error {
	ca, caKey, err := d.load(c.Authority)
	if err != nil {
		return err
	}
	t, err := d.template()
	if err != nil {
		return err
	}
	t.Subject = pkix.Name{CommonName: c.CommonName, Organization: c.Organization}
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	t.DNSNames = c.DNSNames
	if c.Server {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, ip := range c.IPs {
		parsed := net.ParseIP(ip)
		if parsed == nil {
			return fmt.Errorf("%q is not an IP address", ip)
		}
		t.IPAddresses = append(t.IPAddresses, parsed)
	}
	if old, _, err := d.load(c.Name); err == nil && d.stillGood(old, t, ca) {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	return d.write(c.Name, t, ca, key, caKey)
}

// stillGood reports whether old, signed by ca, does what a certificate made from t would.
func (d Dir) stillGood(old, t, ca *x509.Certificate) bool {
	if old.CheckSignatureFrom(ca) != nil || old.NotAfter.Before(d.Now().Add(renewBefore)) {
		return false
	}
	if old.Subject.CommonName != t.Subject.CommonName ||
		fmt.Sprint(old.Subject.Organization) != fmt.Sprint(t.Subject.Organization) ||
		len(old.ExtKeyUsage) != len(t.ExtKeyUsage) || fmt.Sprint(old.DNSNames) != fmt.Sprint(t.DNSNames) {
		return false
	}
	return fmt.Sprint(old.IPAddresses) == fmt.Sprint(t.IPAddresses)
}

func (d Dir) template() (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	now := d.Now()
	return &x509.Certificate{SerialNumber: serial, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(lifetime)}, nil
}

func (d Dir) write(name string, t, parent *x509.Certificate, key *ecdsa.PrivateKey, signer crypto.Signer) error {
	der, err := x509.CreateCertificate(rand.Reader, t, parent, &key.PublicKey, signer)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := instance.WriteFile(d.Key(name), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
		0o600); err != nil {
		return err
	}
	return instance.WriteFile(d.Crt(name), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}

// load reads a certificate and its key, and refuses a pair that does not match (a crash between the
// two writes).
func (d Dir) load(name string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	crtPEM, err := os.ReadFile(d.Crt(name))
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err := os.ReadFile(d.Key(name))
	if err != nil {
		return nil, nil, err
	}
	crtBlock, _ := pem.Decode(crtPEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if crtBlock == nil || keyBlock == nil {
		return nil, nil, fmt.Errorf("%s or its key is not PEM: delete both", d.Crt(name))
	}
	crt, err := x509.ParseCertificate(crtBlock.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", d.Crt(name), err)
	}
	key, err := x509.ParseECPrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", d.Key(name), err)
	}
	if !key.PublicKey.Equal(crt.PublicKey) {
		return nil, nil, fmt.Errorf("%s does not belong to its key: delete both", d.Crt(name))
	}
	return crt, key, nil
}

func (d Dir) ensureServiceAccountKey() error {
	pub := filepath.Join(d.Path, ServiceAccount+".pub")
	if _, err := os.Stat(pub); err == nil {
		return nil // it is written last
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	pubDER, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	if err := instance.WriteFile(d.Key(ServiceAccount),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), 0o600); err != nil {
		return err
	}
	return instance.WriteFile(pub, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pubDER}), 0o644)
}
