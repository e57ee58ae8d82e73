//go:build integration

package security

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/manifests"
	"github.com/virtkit/virtkit/tests/env"
)

var environment *env.Environment

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "security:", err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if environment, err = env.Start(ctx); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, environment.Stop()) }()
	for _, pattern := range []string{"base/rbac-*.yaml", "base/policy-*.yaml"} {
		if err := install(ctx, pattern); err != nil {
			return 1, err
		}
	}
	return m.Run(), nil
}

// install creates the objects of the manifests that match a pattern.
func install(ctx context.Context, pattern string) error {
	files, err := fs.Glob(manifests.FS, pattern)
	if err != nil {
		return err
	}
	for _, name := range files {
		text, err := manifests.FS.ReadFile(name)
		if err != nil {
			return err
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
		for {
			var object unstructured.Unstructured
			err := decoder.Decode(&object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("read %s: %w", name, err)
			}
			if err := environment.Client.Create(ctx, &object); err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("%s: create %s %s: %w", name, object.GetKind(), object.GetName(), err)
			}
		}
	}
	return nil
}

// as is a client that acts as another user.
func as(t *testing.T, user string, groups []string, extra map[string][]string) client.Client {
	t.Helper()
	config := rest.CopyConfig(environment.Config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: user, Groups: append(groups, "system:authenticated"), Extra: extra,
	}
	c, err := client.New(config, client.Options{Scheme: environment.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// serviceAccount is a client that acts as a service account of namespace kubevirt whose token is bound to a pod on a
// node.
func serviceAccount(t *testing.T, name, node string) client.Client {
	t.Helper()
	return as(t, "system:serviceaccount:kubevirt:"+name,
		[]string{"system:serviceaccounts", "system:serviceaccounts:kubevirt"},
		map[string][]string{"authentication.kubernetes.io/node-name": {node}})
}

// tenant makes a namespace and returns it with a client of a user who has the roles edit and kubevirt.io:edit there.
func tenant(t *testing.T) (namespace string, _ client.Client) {
	t.Helper()
	ctx := t.Context()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "tenant-"}}
	if err := environment.Client.Create(ctx, ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Client.Delete(context.WithoutCancel(ctx), ns); err != nil {
			t.Errorf("delete namespace %s: %v", ns.Name, err)
		}
	})
	user := "user-of-" + ns.Name
	// Nobody aggregates roles here: edit has what system:aggregate-to-edit has.
	for _, role := range []string{"system:aggregate-to-edit", "kubevirt.io:edit"} {
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: strings.ReplaceAll(role, ":", "-")},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}
		if err := environment.Client.Create(ctx, binding); err != nil {
			t.Fatal(err)
		}
	}
	return ns.Name, as(t, user, nil, nil)
}

// denied fails unless the error is a policy's refusal, whose message has the text. Roles and policies take a moment to
// take effect, so try is made again while it is let through, or refused for want of rights.
func denied(t *testing.T, text string, try func() error) {
	t.Helper()
	var last error
	err := env.Eventually(t.Context(), func(context.Context) (bool, error) {
		last = try()
		return last != nil && strings.Contains(last.Error(), "ValidatingAdmissionPolicy") &&
			strings.Contains(last.Error(), text), nil
	})
	if err != nil {
		t.Errorf("not denied by a policy that says %q; the last answer: %v", text, last)
	}
}

// allowed fails unless try succeeds, which roles may take a moment to let it.
func allowed(t *testing.T, try func() error) {
	t.Helper()
	var last error
	err := env.Eventually(t.Context(), func(context.Context) (bool, error) {
		last = try()
		return last == nil, nil
	})
	if err != nil {
		t.Errorf("refused: %v", last)
	}
}
