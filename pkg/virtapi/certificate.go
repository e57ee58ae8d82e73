package virtapi

import (
	"sync"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/virtkit/virtkit/pkg/service/certs"
)

// certificate gives the API server machinery what pkg/service/certs follows, live.
type certificate struct {
	source *certs.Source

	mu        sync.Mutex
	listeners []dynamiccertificates.Listener
}

var _ dynamiccertificates.CertKeyContentProvider = (*certificate)(nil)

func newCertificate(source *certs.Source) *certificate {
	c := &certificate{source: source}
	source.OnChange(c.notify)
	return c
}

func (c *certificate) notify() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, listener := range c.listeners {
		listener.Enqueue()
	}
}

// Name implements CertKeyContentProvider.
func (c *certificate) Name() string { return "virt-api" }

// CurrentCertKeyContent implements CertKeyContentProvider; both are nil before there is a certificate.
func (c *certificate) CurrentCertKeyContent() (cert, key []byte) {
	material, err := c.source.Current()
	if err != nil {
		return nil, nil
	}
	return material.CertificatePEM, material.KeyPEM
}

// AddListener implements dynamiccertificates.Notifier.
func (c *certificate) AddListener(listener dynamiccertificates.Listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners = append(c.listeners, listener)
}
