package exportcontroller

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"kubevirt.io/api/export/v1beta1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/certs"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

// identityAnnotation is on an export's Service: JSON of its identity. It spares the reconciler to read a Secret.
const identityAnnotation = "virtkit.io/export-identity"

// slack is the time by which a certificate outlives its export.
const slack = time.Hour

// identity holds what an export's server presents to its clients.
type identity struct {
	// Secret has the certificate and its key.
	Secret string `json:"secret"`
	// Certificate is the authority's that signed it, PEM.
	Certificate string `json:"certificate"`
}

// identityOf returns the identity in a Service's annotation; nil when it has none.
func identityOf(service *corev1.Service) *identity {
	if service == nil {
		return nil
	}
	var out identity
	err := json.Unmarshal([]byte(service.Annotations[identityAnnotation]), &out)
	if err != nil || out.Secret == "" || out.Certificate == "" {
		return nil
	}
	return &out
}

// Issued is a new certificate for an export's Service.
type Issued struct {
	// Secret has the certificate, Annotation the Service's that names it.
	Secret     *corev1.Secret
	Annotation string
}

// issue makes an authority, which signs one certificate and is forgotten.
func issue(export *v1beta1.VirtualMachineExport, suffix string, now time.Time) (*Issued, error) {
	lifetime := exports.Expiration(export).Sub(now) + slack
	authority, err := certs.NewAuthority(now, lifetime)
	if err != nil {
		return nil, err
	}
	host := exports.Host(export.Namespace, export.Name)
	pair, err := authority.Issue(certs.Leaf{
		CommonName: names.VirtExport,
		DNSNames:   []string{host, host + ".cluster.local", exports.Name(export.Name) + "." + export.Namespace},
	}, now, lifetime)
	if err != nil {
		return nil, err
	}
	key, err := pair.KeyPEM()
	if err != nil {
		return nil, err
	}
	secret := newSecret(export, exports.Name(export.Name)+"-"+suffix, map[string][]byte{
		corev1.TLSCertKey: pair.CertificatePEM(), corev1.TLSPrivateKeyKey: key,
	})
	secret.Type = corev1.SecretTypeTLS
	made := identity{Secret: secret.Name, Certificate: string(authority.CertificatePEM())}
	text, err := made.encode()
	if err != nil {
		return nil, err
	}
	return &Issued{Secret: secret, Annotation: text}, nil
}

// newSecret returns a Secret that goes with an export.
func newSecret(export *v1beta1.VirtualMachineExport, name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: export.Namespace, Name: name, OwnerReferences: []metav1.OwnerReference{owner(export)},
		},
		Type: corev1.SecretTypeOpaque,
		Data: data,
	}
}

// encode returns the annotation's value.
func (i *identity) encode() (string, error) {
	text, err := json.Marshal(i)
	if err != nil {
		return "", fmt.Errorf("encode the identity: %w", err)
	}
	return string(text), nil
}
