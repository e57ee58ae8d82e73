package virtapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// callersLife is the time for which a directory's list of callers is cached.
const callersLife = 5 * time.Second

// authoritiesWait is how long a call waits for the cluster's authorities, which a virt-api that has just begun does not
// know yet: the API server calls it by then, for its pod was ready before it began again.
const authoritiesWait = 5 * time.Second

// webhookClients is the ConfigMap that an administrator makes; virt-api has it mounted.
const webhookClients = "kubevirt-webhook-clients"

// callers are the clients that may call the webhooks: those with a certificate for one of the names in the file `names`
// of a directory, where the ConfigMap kubevirt-webhook-clients is mounted. While there is no such file, anybody may,
// since the API server calls without a certificate unless its administrator has given it one. The certificate is from
// an authority in the file ca.crt, or, without that file, from one of the cluster's for clients.
type callers struct {
	dir string
	// cluster are the cluster's authorities for clients; false is that they are not known.
	cluster func() (x509.VerifyOptions, bool)
	now     func() time.Time

	mu      sync.Mutex
	until   time.Time
	names   []string // nil: anybody
	options x509.VerifyOptions
	err     error
}

// newCallers reads a directory; empty lets anybody call.
func newCallers(dir string) *callers {
	unknown := func() (x509.VerifyOptions, bool) { return x509.VerifyOptions{}, false }
	return &callers{dir: dir, cluster: unknown, now: time.Now}
}

// check refuses who may not call. identified is that the caller has shown who it is; without names it is false for all.
func (c *callers) check(ctx context.Context, state *tls.ConnectionState) (identified bool, _ error) {
	if c == nil || c.dir == "" {
		return false, nil
	}
	names, options, err := c.read(ctx)
	switch {
	case err != nil:
		return false, err
	case names == nil:
		return false, nil
	case state == nil || len(state.PeerCertificates) == 0:
		return false,
			apierrors.NewUnauthorized("webhooks are called with a client certificate; see ConfigMap " + webhookClients)
	}
	options.Intermediates = x509.NewCertPool()
	for _, certificate := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(certificate)
	}
	leaf := state.PeerCertificates[0]
	if _, err := leaf.Verify(options); err != nil {
		return false, notCaller("its certificate is not trusted: " + err.Error())
	}
	if !slices.Contains(names, leaf.Subject.CommonName) {
		return false,
			notCaller(fmt.Sprintf("its certificate's name %q is not in ConfigMap %s", leaf.Subject.CommonName,
				webhookClients))
	}
	return true, nil
}

func notCaller(why string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: "the client may not call webhooks: " + why,
	}}
}

// read returns what the directory says, as it was within the last few seconds. It waits while the cluster's authorities
// are not known.
func (c *callers) read(ctx context.Context) ([]string, x509.VerifyOptions, error) {
	ctx, cancel := context.WithTimeout(ctx, authoritiesWait)
	defer cancel()
	for {
		names, options, err := c.recent()
		if !apierrors.IsServiceUnavailable(err) {
			return names, options, err
		}
		select {
		case <-time.After(authoritiesWait / 50):
		case <-ctx.Done():
			return names, options, err
		}
	}
}

// recent is read without a wait. That the authorities are not known is not kept.
func (c *callers) recent() ([]string, x509.VerifyOptions, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); !now.Before(c.until) {
		c.names, c.options, c.err = c.load()
		if !apierrors.IsServiceUnavailable(c.err) {
			c.until = now.Add(callersLife)
		}
	}
	return c.names, c.options, c.err
}

func (c *callers) load() (names []string, options x509.VerifyOptions, _ error) {
	text, err := os.ReadFile(filepath.Join(c.dir, "names"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, options, nil
	}
	if err != nil {
		return nil, options, fmt.Errorf("read who may call webhooks: %w", err)
	}
	for name := range strings.FieldsFuncSeq(string(text), func(r rune) bool { return r == '\n' || r == ',' }) {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, options, fmt.Errorf("key names of ConfigMap %s has no name; delete the ConfigMap to let anybody "+
			"call webhooks", webhookClients)
	}
	bundle, err := os.ReadFile(filepath.Join(c.dir, "ca.crt"))
	if errors.Is(err, fs.ErrNotExist) {
		options, known := c.cluster()
		if !known {
			return nil, options,
				apierrors.NewServiceUnavailable("the cluster's authorities for clients are not known yet")
		}
		return names, options, nil
	}
	if err != nil {
		return nil, options, fmt.Errorf("read whose certificates may call webhooks: %w", err)
	}
	options = x509.VerifyOptions{Roots: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if !options.Roots.AppendCertsFromPEM(bundle) {
		return nil, options, fmt.Errorf("key ca.crt of ConfigMap %s has no certificate", webhookClients)
	}
	return names, options, nil
}
