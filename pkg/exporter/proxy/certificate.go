package proxy

import (
	"crypto/tls"
	"fmt"
	"sync"
	"time"
)

// rereads is how often the files of the certificate are read again: the kubelet replaces them when virt-controller has
// renewed it, days before the old one ends.
const rereads = time.Minute

// certificate is one that is in files.
type certificate struct {
	cert, key string
	now       func() time.Time

	mu      sync.Mutex
	current *tls.Certificate
	read    time.Time
}

// get returns the certificate. The last good one is used while the files are not.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil && c.now().Sub(c.read) < rereads {
		return c.current, nil
	}
	c.read = c.now()
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err == nil {
		c.current = &pair
	} else if c.current == nil {
		return nil, fmt.Errorf("load the certificate: %w", err)
	}
	return c.current, nil
}
