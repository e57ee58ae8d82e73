package certificates

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/certs"
)

const (
	handlerUser = "system:serviceaccount:" + names.Namespace + ":" + names.VirtHandler
	// extraNode is the key of the user's extra field in which the API server names the node that a token is bound to
	// (KEP-4193). The holder of the token cannot change it.
	extraNode = "authentication.kubernetes.io/node-name"
	// signWorkers sign at a time.
	signWorkers = 4
)

// signer signs the certificates that the nodes' virt-handlers ask for.
//
//	reads:  CertificateSigningRequests of signer names.SignerHandler
//	writes: their approval and their status
type signer struct {
	client kubernetes.Interface
	policy func() certs.Policy
	now    func() time.Time
	log    logr.Logger

	authority atomic.Pointer[certs.Pair] // nil until it is known
	queue     workqueue.TypedRateLimitingInterface[string]
	requests  cache.Store
}

func newSigner(client kubernetes.Interface, policy func() certs.Policy, now func() time.Time, log logr.Logger) *signer {
	return &signer{
		client: client, policy: policy, now: now, log: log.WithName("signer"),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 30*time.Second),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "certificates"}),
	}
}

// use signs with an authority from now on.
func (s *signer) use(authority certs.Pair) {
	if s.authority.Swap(&authority) == nil {
		s.queue.Add("") // those that waited for it
	}
}

// run signs until the context ends. It may be called once.
func (s *signer) run(ctx context.Context) {
	listWatch := certs.Selected(s.client.CertificatesV1().CertificateSigningRequests(),
		fields.OneTermEqualSelector("spec.signerName", names.SignerHandler))
	add := func(obj any) {
		if request, ok := obj.(*certificatesv1.CertificateSigningRequest); ok && open(request) {
			s.queue.Add(request.Name)
		}
	}
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(listWatch, s.client),
		ObjectType:    &certificatesv1.CertificateSigningRequest{},
		Handler:       cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, obj any) { add(obj) }},
	})
	s.requests = store
	done := make(chan struct{}, signWorkers)
	for range signWorkers {
		go func() {
			for s.work(ctx) {
			}
			done <- struct{}{}
		}()
	}
	informer.RunWithContext(ctx)
	s.queue.ShutDown()
	for range signWorkers {
		<-done
	}
}

// work takes one request from the queue; false when there will be no more.
func (s *signer) work(ctx context.Context) bool {
	name, ended := s.queue.Get()
	if ended {
		return false
	}
	defer s.queue.Done(name)
	if name == "" {
		for _, key := range s.requests.ListKeys() {
			s.queue.Add(key)
		}
		return true
	}
	found, ok, err := s.requests.GetByKey(name)
	if err == nil && ok {
		err = s.sign(ctx, found.(*certificatesv1.CertificateSigningRequest))
	}
	if err == nil || ctx.Err() != nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		s.queue.Forget(name) // another version of it comes by the watch, or none
		return true
	}
	s.log.Error(err, "certificate not signed", "request", name)
	s.queue.AddRateLimited(name)
	return true
}

// open reports whether a request has no answer yet.
func open(request *certificatesv1.CertificateSigningRequest) bool {
	return len(request.Status.Certificate) == 0 && request.Spec.SignerName == names.SignerHandler &&
		!has(request, certificatesv1.CertificateDenied) && !has(request, certificatesv1.CertificateFailed)
}

func has(request *certificatesv1.CertificateSigningRequest, condition certificatesv1.RequestConditionType) bool {
	return slices.ContainsFunc(request.Status.Conditions,
		func(c certificatesv1.CertificateSigningRequestCondition) bool { return c.Type == condition })
}

// sign answers one request.
func (s *signer) sign(ctx context.Context, request *certificatesv1.CertificateSigningRequest) error {
	authority := s.authority.Load()
	if authority == nil || !open(request) {
		return nil
	}
	api := s.client.CertificatesV1().CertificateSigningRequests()
	request = request.DeepCopy()
	node, certificate, err := s.issue(*authority, request)
	if err != nil {
		if has(request, certificatesv1.CertificateApproved) {
			return fmt.Errorf("it was approved by others, and is not to be: %w", err)
		}
		s.log.Info("certificate refused", "request", request.Name, "user", request.Spec.Username, "reason", err.Error())
		condition(request, certificatesv1.CertificateDenied, "NotItsOwn", err.Error())
		_, err = api.UpdateApproval(ctx, request.Name, request, metav1.UpdateOptions{})
		return err
	}
	if !has(request, certificatesv1.CertificateApproved) {
		condition(request, certificatesv1.CertificateApproved, "VirtHandler",
			"It is for the virt-handler of node "+node+", which asks for it.")
		if request, err = api.UpdateApproval(ctx, request.Name, request, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	request.Status.Certificate = certificate
	_, err = api.UpdateStatus(ctx, request, metav1.UpdateOptions{})
	return err
}

func condition(
	request *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType, reason, message string,
) {
	request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message,
	})
}

// issue makes the certificate that a request is for, PEM, and says for which node. The error says why whoever made the
// request is not to have it.
func (s *signer) issue(
	authority certs.Pair, request *certificatesv1.CertificateSigningRequest,
) (node string, certificate []byte, err error) {
	spec := request.Spec
	if spec.Username != handlerUser {
		return "", nil, fmt.Errorf("user %s is not virt-handler", spec.Username)
	}
	nodes := spec.Extra[extraNode]
	if len(nodes) != 1 || nodes[0] == "" {
		return "", nil, errors.New("the token of virt-handler names no node")
	}
	leaf, key, err := certs.ParseRequest(spec.Request, nodes[0])
	if err != nil {
		return "", nil, err
	}
	if want := leaf.Usages(); !sameUsages(spec.Usages, want) {
		return "", nil, fmt.Errorf("the usages are %q, want %q", spec.Usages, want)
	}
	lifetime := s.policy().LeafLifetime
	if seconds := spec.ExpirationSeconds; seconds != nil {
		lifetime = min(lifetime, time.Duration(*seconds)*time.Second)
	}
	signed, err := authority.Sign(leaf, key, s.now(), lifetime)
	if err != nil {
		return "", nil, err
	}
	return nodes[0], pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed.Raw}), nil
}

func sameUsages(have, want []certificatesv1.KeyUsage) bool {
	return slices.Equal(slices.Sorted(slices.Values(have)), slices.Sorted(slices.Values(want)))
}
