//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/export/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/export"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/certs"
)

// api is virtctl's client.
func (c *cluster) api(t *testing.T) *client.Client {
	t.Helper()
	api, err := client.New(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	return api
}

const outsideHost = "vms.example.com"

// An Ingress to Service virt-exportproxy gives exports an external link with the Ingress's certificate, at which the
// proxy serves who has the token, and no other; without the Ingress there is no link, and no pod of the proxy. The
// Ingress is of all exports, so no other test runs beside it.
func TestVMExportFromOutside(t *testing.T) {
	c := theCluster
	ns := c.namespace(t, "restricted")
	data := make([]byte, 24<<20)
	_, _ = rand.Read(data) // never fails
	image := filepath.Join(t.TempDir(), "disk.img")
	if err := os.WriteFile(image, data, 0o600); err != nil {
		t.Fatal(err)
	}
	c.virtctl(t, nil, "-n", ns, "image-upload", "pvc", "disk", "--size=64Mi", "--image-path="+image, "--wait-secs=120")
	if err := c.Client.Create(t.Context(), newVM(ns, "vm", v1.RunStrategyHalted, withDisks("disk"))); err != nil {
		t.Fatal(err)
	}
	c.virtctl(t, nil, "-n", ns, "vmexport", "create", "out", "--vm=vm")

	certificate := c.entrance(t)
	c.waitProxy(t, true)
	c.logsOfProxy(t)
	var link *v1beta1.VirtualMachineExportLink
	eventually(t, time.Minute, "the export has an external link", func() string {
		got, err := export.Get(t.Context(), c.api(t), ns, "out")
		switch {
		case err != nil:
			return err.Error()
		case got.Status == nil || got.Status.Links == nil || got.Status.Links.External == nil:
			return fmt.Sprintf("%+v", got.Status)
		case got.Status.Links.External.Cert != certificate:
			return "its certificate is " + got.Status.Links.External.Cert
		}
		link = got.Status.Links.External
		return ""
	})
	token, err := c.Kube.CoreV1().Secrets(ns).Get(t.Context(), "secret-out", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	header := func(more ...string) http.Header {
		out := http.Header{}
		out.Set(names.HeaderExportToken, string(token.Data[names.ExportTokenKey]))
		for i := 0; i < len(more); i += 2 {
			out.Set(more[i], more[i+1])
		}
		return out
	}
	outside := c.proxyClient(t)
	raw := link.Volumes[0].Formats[0].Url
	if !strings.HasPrefix(raw, "https://"+outsideHost+"/api/export.kubevirt.io/v1beta1/namespaces/"+ns+"/") {
		t.Errorf("the disk is at %s", raw)
	}
	if code, got := outside.get(t, raw, header()); code != http.StatusOK || len(got) < len(data) ||
		!bytes.Equal(got[:len(data)], data) {
		t.Errorf("the disk: %d, %d bytes", code, len(got))
	}
	if code, got := outside.get(t, raw, header("Range", "bytes=1000000-1000999")); code != http.StatusPartialContent ||
		!bytes.Equal(got, data[1000000:1001000]) {
		t.Errorf("a range: %d, %d bytes", code, len(got))
	}
	for what, h := range map[string]http.Header{"none": {}, "another": {"X-Kubevirt-Export-Token": {"x"}}} {
		if code, _ := outside.get(t, raw, h); code != http.StatusUnauthorized {
			t.Errorf("with %s token: %d", what, code)
		}
	}
	if code, _ := outside.get(t, strings.Replace(raw, "/out/", "/other/", 1), header()); code != http.StatusNotFound {
		t.Errorf("an export that is not there: %d", code)
	}
	code, manifests := outside.get(t, link.Manifests[0].Url, header("Accept", "application/yaml"))
	if code != http.StatusOK || !strings.Contains(string(manifests), "https://"+outsideHost+"/api/") ||
		strings.Contains(string(manifests), ".svc/") || !strings.Contains(string(manifests), "BEGIN CERTIFICATE") {
		t.Errorf("the manifests for another cluster: %d\n%s", code, manifests)
	}

	if err := c.Kube.NetworkingV1().Ingresses(names.Namespace).
		Delete(t.Context(), "e2e-exports", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "the link is gone", func() string {
		got, err := export.Get(t.Context(), c.api(t), ns, "out")
		switch {
		case err != nil:
			return err.Error()
		case got.Status.Links == nil || got.Status.Links.Internal == nil || got.Status.Links.External != nil:
			return fmt.Sprintf("%+v", got.Status.Links)
		}
		return ""
	})
	c.waitProxy(t, false)
}

// entrance makes an Ingress, for which nothing need listen, and returns its certificate.
func (c *cluster) entrance(t *testing.T) string {
	t.Helper()
	authority, err := certs.NewAuthority(time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue(certs.Leaf{CommonName: "e2e", DNSNames: []string{outsideHost}}, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	key, err := pair.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Namespace: names.Namespace, Name: "e2e-exports"}
	path := networkingv1.PathTypePrefix
	for _, object := range []ctrl.Object{
		&corev1.Secret{ObjectMeta: meta, Type: corev1.SecretTypeTLS, Data: map[string][]byte{
			corev1.TLSCertKey: pair.CertificatePEM(), corev1.TLSPrivateKeyKey: key,
		}},
		&networkingv1.Ingress{ObjectMeta: meta, Spec: networkingv1.IngressSpec{
			TLS: []networkingv1.IngressTLS{{Hosts: []string{outsideHost}, SecretName: meta.Name}},
			Rules: []networkingv1.IngressRule{{
				Host: outsideHost,
				IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
					Paths: []networkingv1.HTTPIngressPath{{
						Path: "/", PathType: &path,
						Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
							Name: names.VirtExportProxy, Port: networkingv1.ServiceBackendPort{Number: 443},
						}},
					}},
				}},
			}},
		}},
	} {
		if err := c.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			// t.Context is over.
			if err := c.Client.Delete(context.Background(), object); err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		})
	}
	return strings.TrimSpace(string(pair.CertificatePEM()))
}

// waitProxy waits until virt-exportproxy has its pods, or none.
func (c *cluster) waitProxy(t *testing.T, some bool) {
	t.Helper()
	eventually(t, 2*time.Minute, "virt-exportproxy has the pods that it needs", func() string {
		var deployment appsv1.Deployment
		key := ctrl.ObjectKey{Namespace: names.Namespace, Name: names.VirtExportProxy}
		if err := c.Client.Get(t.Context(), key, &deployment); err != nil {
			return err.Error()
		}
		s := deployment.Status
		if wants := *deployment.Spec.Replicas; (wants > 0) != some || s.AvailableReplicas != wants ||
			s.Replicas != wants {
			return fmt.Sprintf("%d wanted, %+v", wants, s)
		}
		return ""
	})
}

// logsOfProxy logs, should the test fail, what the proxy's pods have said: they are gone at its end.
func (c *cluster) logsOfProxy(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, pod := range c.componentPods(t, names.VirtExportProxy) {
			log, err := c.Kube.CoreV1().Pods(names.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).
				DoRaw(context.Background())
			t.Logf("log of %s: %v\n%s", pod.Name, err, log)
		}
	})
}

// proxyClient reaches virt-exportproxy as an Ingress controller does, by its own certificate.
type proxyClient struct{ *http.Client }

func (c *cluster) proxyClient(t *testing.T) proxyClient {
	t.Helper()
	bundle, err := c.Kube.CoreV1().ConfigMaps(names.Namespace).Get(t.Context(), names.CABundle, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(bundle.Data[names.CABundleKey])) {
		t.Fatal("the installation has no authority")
	}
	pod, api := c.componentPods(t, names.VirtExportProxy)[0].Name, c.api(t)
	return proxyClient{&http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{
			RootCAs: roots, ServerName: names.DNSNameExportProxy, MinVersion: tls.VersionTLS12,
		},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return api.PodPort(ctx, names.Namespace, pod, names.ExportProxyPort)
		},
	}}}
}

func (p proxyClient) get(t *testing.T, address string, header http.Header) (int, []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header = header
	response, err := p.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, data
}
