//go:build integration

package security

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/controller/certificates"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/certs"
	"github.com/virtkit/virtkit/tests/env"
)

// configOf is a component's access to the API server, with the rights of the manifests.
func configOf(component, node string) *rest.Config {
	config := rest.CopyConfig(environment.Config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + names.Namespace + ":" + component,
		Groups: []string{
			"system:serviceaccounts", "system:serviceaccounts:" + names.Namespace, "system:authenticated",
		},
		Extra: map[string][]string{"authentication.kubernetes.io/node-name": {node}},
	}
	return config
}

// A node gets the certificate of its own virt-handler, and no other: not another node's, and not a component's.
func TestCertificatesOfNodes(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var running errgroup.Group
	t.Cleanup(func() {
		stop()
		if err := running.Wait(); err != nil {
			t.Error(err)
		}
	})
	controller := configOf(names.VirtController, "controlplane")
	rotator := certificates.New(kubernetes.NewForConfigOrDie(controller), dynamic.NewForConfigOrDie(controller), nil,
		certs.DefaultPolicy, logr.Discard())
	running.Go(func() error { return rotator.Start(ctx) })

	handler := kubernetes.NewForConfigOrDie(configOf(names.VirtHandler, ownNode))
	source := certs.NewNodeSource(certs.NodeCertificate{
		Client: handler, Namespace: names.Namespace, Leaf: certs.HandlerLeaf(ownNode),
		File:   filepath.Join(t.TempDir(), "handler.pem"),
		Policy: certs.DefaultPolicy, Now: time.Now,
	})
	running.Go(func() error { return source.Run(ctx) })
	select {
	case <-source.Ready():
	case <-time.After(time.Minute):
		t.Fatal("virt-handler has no certificate")
	}

	for name, c := range map[string]struct {
		leaf certs.Leaf
		as   client.Client
	}{
		"another node's":      {certs.HandlerLeaf(otherNode), handlerOf(t, ownNode)},
		"another's to guests": {certs.GuestsLeaf(otherNode), handlerOf(t, ownNode)},
		"virt-api's": {
			certs.Leaf{CommonName: names.CommonNameAPI, DNSNames: []string{names.DNSNameAPI}}, handlerOf(t, ownNode),
		},
		"by an administrator": {certs.HandlerLeaf(ownNode), environment.Client},
	} {
		t.Run(name, func(t *testing.T) {
			_, pem, err := c.leaf.Request()
			if err != nil {
				t.Fatal(err)
			}
			request := &certificatesv1.CertificateSigningRequest{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "exploit-"},
				Spec: certificatesv1.CertificateSigningRequestSpec{
					Request: pem, SignerName: names.SignerHandler, Usages: c.leaf.Usages(),
				},
			}
			if err := c.as.Create(ctx, request); err != nil {
				t.Fatal(err)
			}
			err = env.Eventually(ctx, func(ctx context.Context) (bool, error) {
				if err := environment.Client.Get(ctx, client.ObjectKeyFromObject(request), request); err != nil {
					return false, err
				}
				if len(request.Status.Certificate) > 0 {
					return false, errors.New("it was signed")
				}
				return len(request.Status.Conditions) == 1 &&
					request.Status.Conditions[0].Type == certificatesv1.CertificateDenied, nil
			})
			if err != nil {
				t.Errorf("not denied: %v, %+v", err, request.Status)
			}
		})
	}
	t.Run("signs by itself", func(t *testing.T) {
		requests, err := handler.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
		if err != nil || len(requests.Items) == 0 {
			t.Fatalf("%v, %v", requests, err)
		}
		request := requests.Items[0].DeepCopy()
		if _, err := handler.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx,
			request.Name, request, metav1.UpdateOptions{}); err == nil {
			t.Error("virt-handler approves certificates")
		}
		if _, err := handler.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx,
			request, metav1.UpdateOptions{}); err == nil {
			t.Error("virt-handler signs certificates")
		}
		if _, err := handler.CoreV1().Secrets(names.Namespace).Get(ctx,
			names.CASecret, metav1.GetOptions{}); err == nil {
			t.Error("virt-handler reads the authority's key")
		}
	})
}
