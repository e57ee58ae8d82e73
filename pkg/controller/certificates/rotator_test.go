package certificates

import (
	"context"
	"encoding/base64"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/certs"
)

const apiService = "v1.subresources.kubevirt.io"

// installation is a Rotator on fakes, with what `virtctl install` applied.
type installation struct {
	*Rotator
	client  *fake.Clientset
	dynamic *dynamicfake.FakeDynamicClient
	now     time.Time
}

func newInstallation(t *testing.T) *installation {
	t.Helper()
	webhooks := func(kind, name string) runtime.Object {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
			"metadata": map[string]any{"name": name, "resourceVersion": "1"},
			"webhooks": []any{
				map[string]any{
					"name":         "vms",
					"clientConfig": map[string]any{"service": map[string]any{"name": "virt-api"}},
				},
				map[string]any{
					"name":         "vmis",
					"clientConfig": map[string]any{"service": map[string]any{"name": "virt-api"}},
				},
			},
		}}
	}
	i := &installation{
		client: fake.NewClientset(), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{apiServices: "APIServiceList"},
			webhooks("MutatingWebhookConfiguration", names.MutatingWebhook),
			webhooks("ValidatingWebhookConfiguration", names.ValidatingWebhook),
			&unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
				"metadata": map[string]any{"name": apiService, "resourceVersion": "1"}, "spec": map[string]any{},
			}},
		),
	}
	i.Rotator = New(i.client, i.dynamic, []string{apiService, "v1alpha3.subresources.kubevirt.io"}, certs.DefaultPolicy,
		logr.Discard())
	i.Now = func() time.Time { return i.now }
	return i
}

// keep runs Keep and returns how many writes it took.
func (i *installation) keep(t *testing.T) int {
	t.Helper()
	i.client.ClearActions()
	i.dynamic.ClearActions()
	if _, err := i.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	writes := 0
	for _, action := range append(i.client.Actions(), i.dynamic.Actions()...) {
		if verb := action.GetVerb(); verb != "get" {
			writes++
		}
	}
	return writes
}

func (i *installation) secret(t *testing.T, name string) map[string][]byte {
	t.Helper()
	secret, err := i.client.CoreV1().Secrets(names.Namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return secret.Data
}

func (i *installation) bundle(t *testing.T) string {
	t.Helper()
	bundle, err := i.client.CoreV1().ConfigMaps(names.Namespace).Get(t.Context(), names.CABundle, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return bundle.Data[names.CABundleKey]
}

func TestKeep(t *testing.T) {
	i := newInstallation(t)
	if writes := i.keep(t); writes != 5+1+2+1 {
		t.Errorf("%d writes, want 4 secrets, one removed, a config map, 2 webhook configurations and an APIService",
			writes)
	}
	for name := range leaves {
		if _, err := certs.ParseMaterial(i.secret(t, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	encoded := base64.StdEncoding.EncodeToString([]byte(i.bundle(t)))
	for _, resource := range []schema.GroupVersionResource{mutatingWebhooks, validatingWebhooks} {
		name := names.MutatingWebhook
		if resource == validatingWebhooks {
			name = names.ValidatingWebhook
		}
		webhooks, _, err := unstructured.NestedSlice(i.get(t, resource, name).Object, "webhooks")
		if err != nil || len(webhooks) != 2 {
			t.Fatalf("%v, %v", webhooks, err)
		}
		for _, webhook := range webhooks {
			if got, _, _ := unstructured.NestedString(webhook.(map[string]any),
				"clientConfig", "caBundle"); got != encoded {
				t.Errorf("%s: caBundle %q", name, got)
			}
		}
	}
	if got, _, _ := unstructured.NestedString(i.get(t, apiServices, apiService).Object,
		"spec", "caBundle"); got != encoded {
		t.Errorf("APIService: caBundle %q", got)
	}
	if writes := i.keep(t); writes != 0 {
		t.Errorf("%d writes though nothing was due", writes)
	}
}

func (i *installation) get(t *testing.T, resource schema.GroupVersionResource, name string) *unstructured.Unstructured {
	t.Helper()
	object, err := i.dynamic.Resource(resource).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func TestKeepRepairs(t *testing.T) {
	i := newInstallation(t)
	i.keep(t)
	secrets := i.client.CoreV1().Secrets(names.Namespace)

	if err := secrets.Delete(t.Context(), names.APICertSecret, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if writes := i.keep(t); writes != 1 {
		t.Errorf("%d writes for one lost certificate", writes)
	}
	old := i.bundle(t)
	if err := secrets.Delete(t.Context(), names.CASecret, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	i.keep(t)
	if bundle := i.bundle(t); len(bundle) <= len(old) || bundle[len(bundle)-len(old):] != old {
		t.Error("the lost authority is not trusted any more")
	}
	secret, err := secrets.Get(t.Context(), names.ControllerCertSecret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret.Data[corev1.TLSCertKey] = []byte("scribble")
	if _, err := secrets.Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	i.keep(t)
	if _, err := certs.ParseMaterial(i.secret(t, names.ControllerCertSecret)); err != nil {
		t.Error(err)
	}
}

// TestKeepRotates goes from one due time to the next for more than a year: the authority changes, and
// the stored state is what is read again.
func TestKeepRotates(t *testing.T) {
	i := newInstallation(t)
	end := i.now.Add(400 * 24 * time.Hour)
	signers := map[string]bool{}
	for steps := 0; i.now.Before(end); steps++ {
		if steps > 100 {
			t.Fatal("too many steps")
		}
		again, err := i.Rotate(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		signers[string(i.secret(t, names.CASecret)[corev1.TLSCertKey])] = true
		i.now = again
	}
	if len(signers) != 2 {
		t.Errorf("%d authorities signed, want 2", len(signers))
	}
	if _, ok := i.secret(t, names.CASecret)[nextCertKey]; ok {
		t.Error("the next authority was not taken out when it became the signer")
	}
}

func TestStartEnds(t *testing.T) {
	i := newInstallation(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- i.Start(ctx) }()
	i.Look()
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("Start does not end")
	}
}
