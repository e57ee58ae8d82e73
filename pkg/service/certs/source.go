package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/virtkit/virtkit/pkg/names"
)

// CABundleKey is the key of a component's Secret that holds the authorities to trust, PEM.
const CABundleKey = "ca.crt"

// Material is a component's certificate, and what it needs to use it.
type Material struct {
	// CertificatePEM, KeyPEM and BundlePEM are the component's certificate, its private key, and the
	// authorities to trust.
	CertificatePEM, KeyPEM, BundlePEM []byte

	certificate tls.Certificate
	roots       *x509.CertPool
}

// Source follows one certificate: that of a Secret (NewSource), or of a node (NewNodeSource). Its configurations
// may be used at once; handshakes fail until there is a certificate, which Ready reports.
type Source struct {
	// what says what is waited for, run follows the certificate and calls set.
	what  string
	run   func(ctx context.Context, s *Source) error
	ready chan struct{}

	mu        sync.RWMutex
	material  *Material
	listeners []func()
}

// NewSource returns the Source of a Secret that virt-controller keeps. Nothing happens until Run.
func NewSource(client kubernetes.Interface, namespace, name string) *Source {
	return &Source{
		what: fmt.Sprintf("secret %s/%s has not been read", namespace, name), ready: make(chan struct{}),
		run: func(ctx context.Context, s *Source) error {
			followSecret(ctx, client, namespace, name, s.set)
			return nil
		},
	}
}

// Run follows the certificate until the context ends; connection errors are retried. It may be called
// once.
func (s *Source) Run(ctx context.Context) error { return s.run(ctx, s) }

// Selected lists and watches those objects of a client that a field selector lets through, so that no right to see
// others is needed.
func Selected[L runtime.Object](api interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}, selector fields.Selector,
) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = selector.String()
			return api.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = selector.String()
			return api.Watch(ctx, options)
		},
	}
}

// followSecret calls set with the data of a Secret whenever it changes, until the context ends.
func followSecret(
	ctx context.Context, client kubernetes.Interface, namespace, name string, set func(map[string][]byte) error,
) {
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name)
	listWatch := Selected(client.CoreV1().Secrets(namespace), selector)
	take := func(obj any) {
		secret, ok := obj.(*corev1.Secret)
		if !ok || secret.Name != name {
			return
		}
		if err := set(secret.Data); err != nil {
			// The last good one stays in use; virt-controller repairs the Secret.
			klog.FromContext(ctx).Error(err, "certificate not usable", "secret", namespace+"/"+name)
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(listWatch, client),
		ObjectType:    &corev1.Secret{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    take,
			UpdateFunc: func(_, obj any) { take(obj) },
		},
	})
	informer.RunWithContext(ctx)
}

// Ready returns a channel that is closed once there is a certificate.
func (s *Source) Ready() <-chan struct{} {
	return s.ready
}

// OnChange registers f, which is called after every change of the certificate or the authorities, the first included;
// it must not block.
func (s *Source) OnChange(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, f)
}

// Current returns what is in use now. The error says that nothing has been read yet.
func (s *Source) Current() (*Material, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.material == nil {
		return nil, errors.New("no certificate yet: " + s.what)
	}
	return s.material, nil
}

// Roots returns the pool of authorities to trust.
func (m *Material) Roots() *x509.CertPool {
	return m.roots
}

func (s *Source) set(data map[string][]byte) error {
	material, err := ParseMaterial(data)
	if err != nil {
		return err
	}
	s.mu.Lock()
	first := s.material == nil
	s.material = material
	listeners := slices.Clone(s.listeners)
	s.mu.Unlock()
	if first {
		close(s.ready)
	}
	for _, listener := range listeners {
		listener()
	}
	return nil
}

// ParseMaterial reads the data of a component's Secret and checks that it is usable.
func ParseMaterial(data map[string][]byte) (*Material, error) {
	m := &Material{
		CertificatePEM: data[corev1.TLSCertKey],
		KeyPEM:         data[corev1.TLSPrivateKeyKey],
		BundlePEM:      data[CABundleKey],
		roots:          x509.NewCertPool(),
	}
	pair, err := ParsePair(m.CertificatePEM, m.KeyPEM)
	if err != nil {
		return nil, err
	}
	m.certificate = tls.Certificate{
		Certificate: [][]byte{pair.Certificate.Raw},
		PrivateKey:  pair.Key,
		Leaf:        pair.Certificate,
	}
	authorities, err := ParseBundle(m.BundlePEM)
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", CABundleKey, err)
	}
	for _, authority := range authorities {
		m.roots.AddCert(authority)
	}
	return m, nil
}

// ServerConfig returns the TLS configuration of a listener. With names given, a client must show a certificate of ours
// whose common name is one of them. It offers HTTP/1.1 only, which upgrades to websockets.
func (s *Source) ServerConfig(allowedClientCNs ...string) *tls.Config {
	if len(allowedClientCNs) == 0 {
		return s.serverConfig(nil)
	}
	return s.serverConfig(func(commonName string) bool { return slices.Contains(allowedClientCNs, commonName) })
}

// ServerConfigForNodes returns the TLS configuration of a listener whose clients are the virt-handlers of any node; the
// listener asks which one.
func (s *Source) ServerConfigForNodes() *tls.Config {
	return s.serverConfig(func(commonName string) bool { return names.NodeOfHandler(commonName) != "" })
}

// serverConfig returns the TLS configuration of a listener whose clients must show a certificate with a common name
// that allowed accepts; with nil they need none.
func (s *Source) serverConfig(allowed func(commonName string) bool) *tls.Config {
	var (
		mu      sync.Mutex
		last    *Material
		current *tls.Config
	)
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// A handshake takes the configuration of its time; one for each generation of the certificate,
		// so that session tickets stay valid within it.
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			material, err := s.Current()
			if err != nil {
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			if material != last {
				last, current = material, serverConfig(material, allowed)
			}
			return current, nil
		},
		// Some listeners insist on a certificate in the outer configuration; GetConfigForClient wins.
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			material, err := s.Current()
			if err != nil {
				return nil, err
			}
			return &material.certificate, nil
		},
		NextProtos: []string{"http/1.1"},
	}
}

func serverConfig(material *Material, allowed func(commonName string) bool) *tls.Config {
	config := &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{material.certificate},
		NextProtos:   []string{"http/1.1"},
	}
	if allowed != nil {
		config.ClientAuth = tls.RequireAndVerifyClientCert
		config.ClientCAs = material.roots
		config.VerifyConnection = func(state tls.ConnectionState) error {
			if name := state.PeerCertificates[0].Subject.CommonName; !allowed(name) {
				return fmt.Errorf("client %q is not allowed here", name)
			}
			return nil
		}
	}
	return config
}

// HandlerConfig returns the TLS configuration for dialling the virt-handler of a node: it takes that node's certificate
// only.
func (s *Source) HandlerConfig(node string) *tls.Config {
	config := s.ClientConfig(names.DNSNameHandler)
	verify := config.VerifyConnection
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if err := verify(state); err != nil {
			return err
		}
		if got, want := state.PeerCertificates[0].Subject.CommonName, names.HandlerOf(node); got != want {
			return fmt.Errorf("%q answers, not the virt-handler of node %s", got, node)
		}
		return nil
	}
	return config
}

// ClientConfig returns the TLS configuration for dialling a component whose certificate has serverName among its DNS
// names, whatever address is dialled. It shows this component's certificate.
func (s *Source) ClientConfig(serverName string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ServerName: serverName,
		// The authorities to trust change, which RootCAs cannot; VerifyConnection below does the whole
		// verification with those of the moment.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			material, err := s.Current()
			if err != nil {
				return err
			}
			if len(state.PeerCertificates) == 0 {
				return errors.New("server showed no certificate")
			}
			intermediates := x509.NewCertPool()
			for _, certificate := range state.PeerCertificates[1:] {
				intermediates.AddCert(certificate)
			}
			_, err = state.PeerCertificates[0].Verify(x509.VerifyOptions{
				Roots:         material.roots,
				Intermediates: intermediates,
				DNSName:       serverName,
				KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			})
			return err
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			material, err := s.Current()
			if err != nil {
				return nil, err
			}
			return &material.certificate, nil
		},
	}
}
