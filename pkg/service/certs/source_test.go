package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func secret(t *testing.T, state State, name string) *corev1.Secret {
	t.Helper()
	leaf := state.Leaves[name]
	key, err := leaf.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kubevirt", Name: name},
		Data: map[string][]byte{
			corev1.TLSCertKey: leaf.CertificatePEM(), corev1.TLSPrivateKeyKey: key,
			CABundleKey: EncodeBundle(state.Trusted),
		},
	}
}

func run(t *testing.T, source *Source) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func wait(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(time.Minute):
		t.Fatalf("timed out waiting for %s", what)
	}
}

// handshake connects the two and returns what the client and the server say. The server writes a
// byte first, since a TLS 1.3 client learns only by reading that its certificate was refused.
func handshake(t *testing.T, server, client *tls.Config) (clientErr, serverErr error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	b, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	a, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	_ = a.SetDeadline(deadline)
	_ = b.SetDeadline(deadline)
	result := make(chan error, 1)
	go func() {
		conn := tls.Server(a, server)
		_, err := conn.Write([]byte("x"))
		result <- err
		_ = a.Close()
	}()
	_, clientErr = io.ReadFull(tls.Client(b, client), make([]byte, 1))
	_ = b.Close()
	return clientErr, <-result
}

func TestSource(t *testing.T) {
	now := time.Now()
	old, _ := mustRotate(t, State{}, now)
	client := fake.NewClientset(secret(t, old, "api"))
	api, handler := NewSource(client, "kubevirt", "api"), NewSource(client, "kubevirt", "handler")
	server := handler.ServerConfig("api")
	dialer := api.ClientConfig("virt-handler.kubevirt.svc")

	changed := make(chan struct{}, 10)
	handler.OnChange(func() { changed <- struct{}{} })
	run(t, api)
	run(t, handler)
	wait(t, "api certificate", api.Ready())

	if _, err := handler.Current(); err == nil {
		t.Error("handler has a certificate though there is no secret")
	}
	if clientErr, _ := handshake(t, server, dialer); clientErr == nil {
		t.Error("handshake without a server certificate succeeded")
	}
	ctx := t.Context()
	secrets := client.CoreV1().Secrets("kubevirt")
	if _, err := secrets.Create(ctx, secret(t, old, "handler"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	wait(t, "handler certificate", handler.Ready())
	<-changed
	if clientErr, serverErr := handshake(t, server, dialer); errors.Join(clientErr, serverErr) != nil {
		t.Errorf("handshake: client %v, server %v", clientErr, serverErr)
	}

	for name, c := range map[string]struct{ server, client *tls.Config }{
		"other server name":     {server, api.ClientConfig("elsewhere.svc")},
		"client not on list":    {handler.ServerConfig("someone"), dialer},
		"client without a cert": {server, &tls.Config{InsecureSkipVerify: true}},
	} {
		if clientErr, serverErr := handshake(t, c.server, c.client); clientErr == nil && serverErr == nil {
			t.Errorf("%s: handshake succeeded", name)
		}
	}
	if clientErr, serverErr := handshake(t, handler.ServerConfig(),
		&tls.Config{InsecureSkipVerify: true}); errors.Join(clientErr, serverErr) != nil {
		t.Errorf("no client names: client %v, server %v", clientErr, serverErr)
	}

	// A broken update is ignored; a new authority is taken up by the same configurations.
	broken := secret(t, old, "handler")
	broken.Data[corev1.TLSPrivateKeyKey] = []byte("nonsense")
	if _, err := secrets.Update(ctx, broken, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	fresh, _ := mustRotate(t, State{}, now)
	if _, err := secrets.Update(ctx, secret(t, fresh, "handler"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	wait(t, "change", changed)
	if clientErr, _ := handshake(t, server, dialer); clientErr == nil {
		t.Error("client trusts an authority it does not know")
	}
	taken := make(chan struct{}, 10)
	api.OnChange(func() { taken <- struct{}{} })
	if _, err := secrets.Update(ctx, secret(t, fresh, "api"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	wait(t, "change", taken)
	if clientErr, serverErr := handshake(t, server, dialer); errors.Join(clientErr, serverErr) != nil {
		t.Errorf("handshake after rotation: client %v, server %v", clientErr, serverErr)
	}
}
