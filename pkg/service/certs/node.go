package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/waits"
)

const (
	// firstRetry doubles with each failure up to lastRetry.
	firstRetry, lastRetry = time.Second, time.Minute
	// maxWait bounds a timer, after which there is another look.
	maxWait = 12 * time.Hour
)

// NodeCertificate is a certificate that virt-handler asks for with a CertificateSigningRequest. The key does not leave
// the node. virt-controller signs, and knows the node by the token with which it is asked.
type NodeCertificate struct {
	Client kubernetes.Interface
	// Namespace has the ConfigMap of the authorities to trust, names.CABundle.
	Namespace string
	Leaf      Leaf
	// File keeps the key and the certificate for the time after a restart, mode 0600.
	File string
	// Policy says when it is renewed.
	Policy func() Policy
	Now    func() time.Time
}

// NewNodeSource returns the Source of such a certificate. Nothing happens until Run.
func NewNodeSource(c NodeCertificate) *Source {
	r := &requested{NodeCertificate: c, look: make(chan struct{}, 1), results: make(chan result, 1)}
	return &Source{
		what:  fmt.Sprintf("certificate request for %q has not been answered", c.Leaf.CommonName),
		ready: make(chan struct{}), run: r.run,
	}
}

// result is the answer to a request.
type result struct {
	pair Pair
	err  error
}

// requested is the state of a node's certificate.
type requested struct {
	NodeCertificate
	look    chan struct{}
	results chan result

	mu     sync.Mutex
	bundle []byte // the authorities to trust, PEM

	pair      *Pair
	asking    bool
	failures  int
	notBefore time.Time // of the next request
}

func (r *requested) run(ctx context.Context, s *Source) error {
	var group sync.WaitGroup
	defer group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	log := klog.FromContext(ctx).WithValues("commonName", r.Leaf.CommonName)
	group.Go(func() { r.followBundle(ctx) })
	pair, err := r.load()
	if err != nil {
		log.Info("the certificate that was kept is not used", "reason", err.Error())
	}
	r.pair = pair
	var published []byte
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.look:
		case <-timer.C:
		case got := <-r.results:
			r.asking = false
			if got.err == nil {
				got.err = r.take(log, got.pair)
			}
			if got.err != nil && ctx.Err() == nil {
				log.Error(got.err, "no certificate")
			}
			r.pace()
		}
		bundle := r.authorities()
		if state := r.state(bundle, published == nil); state != nil && !bytes.Equal(state, published) {
			if err := r.publish(s, bundle); err != nil {
				log.Error(err, "certificate not usable")
			} else {
				published = state
			}
		}
		timer.Reset(r.next(ctx, &group, bundle))
	}
}

// pace makes the next request wait, the longer the more have brought nothing: one that is due again at once, because
// the clocks differ, counts as well.
func (r *requested) pace() {
	now := r.Now()
	if r.due(r.authorities(), now).After(now) {
		r.failures, r.notBefore = 0, time.Time{}
		return
	}
	r.failures++
	r.notBefore = now.Add(waits.After(firstRetry, lastRetry, r.failures))
}

// due returns when another certificate is to be asked for.
func (r *requested) due(bundle []byte, now time.Time) time.Time {
	if r.pair == nil || bundle != nil && trusts(bundle, r.pair.Certificate, now) != nil {
		return now
	}
	return r.pair.renewAt(r.Policy().LeafRenewBefore)
}

// state returns what to publish: the certificate and the authorities; nil when there is nothing yet. The first must be
// one that others take.
func (r *requested) state(bundle []byte, first bool) []byte {
	if r.pair == nil || bundle == nil || first && trusts(bundle, r.pair.Certificate, r.Now()) != nil {
		return nil
	}
	return append(bytes.Clone(r.pair.Certificate.Raw), bundle...)
}

func (r *requested) publish(s *Source, bundle []byte) error {
	key, err := r.pair.KeyPEM()
	if err != nil {
		return err
	}
	return s.set(map[string][]byte{
		corev1.TLSCertKey: r.pair.CertificatePEM(), corev1.TLSPrivateKeyKey: key,
		CABundleKey: bundle,
	})
}

// next asks for a certificate if one is due, and says when to look again.
func (r *requested) next(ctx context.Context, group *sync.WaitGroup, bundle []byte) time.Duration {
	now := r.Now()
	due := r.due(bundle, now)
	if due.Before(r.notBefore) {
		due = r.notBefore
	}
	switch {
	case r.asking:
		return maxWait // the answer comes first
	case due.After(now):
		return min(due.Sub(now), maxWait)
	}
	r.asking = true
	group.Go(func() {
		pair, err := r.ask(ctx)
		r.results <- result{pair, err}
	})
	return maxWait
}

// take uses a certificate that was signed, and keeps it.
func (r *requested) take(log klog.Logger, pair Pair) error {
	if pair.Certificate.Subject.CommonName != r.Leaf.CommonName {
		return fmt.Errorf("the certificate that was signed is for %q", pair.Certificate.Subject.CommonName)
	}
	if bundle := r.authorities(); bundle != nil {
		if err := trusts(bundle, pair.Certificate, r.Now()); err != nil {
			return fmt.Errorf("check the certificate that was signed: %w", err)
		}
	}
	r.pair = &pair
	if err := r.store(pair); err != nil {
		// It is good until the next restart, which asks for another one.
		log.Error(err, "certificate not kept")
	}
	return nil
}

// trusts returns why no authority of a bundle has signed a certificate; nil when one has.
func trusts(bundle []byte, certificate *x509.Certificate, now time.Time) error {
	authorities, err := ParseBundle(bundle)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	for _, authority := range authorities {
		roots.AddCert(authority)
	}
	_,
		err = certificate.Verify(x509.VerifyOptions{
		Roots: roots, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}

// ask makes a key and has its certificate signed.
func (r *requested) ask(ctx context.Context) (Pair, error) {
	key, request, err := r.Leaf.Request()
	if err != nil {
		return Pair{}, err
	}
	api := r.Client.CertificatesV1().CertificateSigningRequests()
	created, err := api.Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: names.VirtHandler +
			"-", Labels: map[string]string{"app.kubernetes.io/part-of": "virtkit"}},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request, SignerName: names.SignerHandler,
			Usages: r.Leaf.Usages(),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return Pair{}, fmt.Errorf("ask for a certificate: %w", err)
	}
	signed, err := r.await(ctx, created.Name)
	if err != nil {
		return Pair{}, fmt.Errorf("wait for certificate signing request %s: %w", created.Name, err)
	}
	encoded, err := Pair{Key: key}.KeyPEM()
	if err != nil {
		return Pair{}, err
	}
	return ParsePair(signed, encoded)
}

// await waits for the answer to a request.
func (r *requested) await(ctx context.Context, name string) ([]byte, error) {
	api := r.Client.CertificatesV1().CertificateSigningRequests()
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	for {
		list, err := api.List(ctx, metav1.ListOptions{FieldSelector: selector})
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(list.Items,
			func(r certificatesv1.CertificateSigningRequest) bool { return r.Name == name })
		if at < 0 {
			return nil, errors.New("it was deleted")
		}
		if signed, err := answer(&list.Items[at]); signed != nil || err != nil {
			return signed, err
		}
		watcher,
			err := api.Watch(ctx, metav1.ListOptions{FieldSelector: selector, ResourceVersion: list.ResourceVersion})
		if err != nil {
			return nil, err
		}
		for event := range watcher.ResultChan() {
			request, ok := event.Object.(*certificatesv1.CertificateSigningRequest)
			if !ok || request.Name != name {
				break // an error, mostly: it is listed again
			}
			if signed, err := answer(request); signed != nil || err != nil {
				watcher.Stop()
				return signed, err
			}
		}
		watcher.Stop()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// answer returns the certificate that was signed, nil while the request is open. The error is a refusal.
func answer(request *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	for _, c := range request.Status.Conditions {
		if c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed {
			return nil, fmt.Errorf("%s: %s", c.Reason, c.Message)
		}
	}
	if len(request.Status.Certificate) == 0 {
		return nil, nil
	}
	return request.Status.Certificate, nil
}

// load reads what was kept; nil when that is nothing, or for another node.
func (r *requested) load() (*Pair, error) {
	data, err := os.ReadFile(r.File)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	pair, err := ParsePair(data, data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", r.File, err)
	}
	if pair.Certificate.Subject.CommonName != r.Leaf.CommonName {
		return nil, fmt.Errorf("%s is for %q", r.File, pair.Certificate.Subject.CommonName)
	}
	return &pair, nil
}

func (r *requested) store(pair Pair) error {
	key, err := pair.KeyPEM()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(r.File), 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(r.File), filepath.Base(r.File)+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(append(key, pair.CertificatePEM()...))
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), r.File)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}
