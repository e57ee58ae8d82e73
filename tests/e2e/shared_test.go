//go:build e2e

package e2e

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

// shared is a guest that boots once for all tests that only look at one: demo, at its login prompt, user root, password
// tiny. They do not stop, move or change it, and do not log in on its console, which would be each other's; and they
// are parallel, so that no test that runs alone disturbs it.
var shared struct {
	once      sync.Once
	guest     *guest
	namespace string
}

// shared is the shared guest; who asks first boots it.
func (c *cluster) shared(t *testing.T) *guest {
	t.Helper()
	shared.once.Do(func() {
		ns, err := c.Kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "e2e-shared-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("create namespace: %v", err)
		}
		shared.namespace = ns.Name
		g := c.create(t, newVM(ns.Name, "demo", v1.RunStrategyAlways))
		g.waitLogin(t)
		shared.guest = g
	})
	t.Cleanup(func() {
		if t.Failed() && shared.namespace != "" {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			c.describe(ctx, t, shared.namespace)
		}
	})
	if shared.guest == nil {
		t.Fatal("the guest that tests share has not booted: see the test that was the first to ask for it")
	}
	return shared.guest
}

// endShared takes the shared guest away.
func (c *cluster) endShared(ctx context.Context) error {
	if shared.namespace == "" {
		return nil
	}
	return c.Kube.CoreV1().Namespaces().Delete(ctx, shared.namespace, metav1.DeleteOptions{})
}
