//go:build integration

package install

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/tests/env"
)

// controlPlane starts an API server with what deletes namespaces, and no nodes; it ends with the test.
func controlPlane(t *testing.T) *rest.Config {
	t.Helper()
	e, err := env.StartBare(t.Context(),
		"--controllers", "garbage-collector-controller,namespace-controller,serviceaccount-controller")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Errorf("stop the control plane: %v", err)
		}
	})
	return e.Config
}

// installer counts the writes of an Installer.
func installer(t *testing.T, config *rest.Config) (*Installer, *atomic.Int64) {
	t.Helper()
	writes := &atomic.Int64{}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet {
				writes.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	i, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	i.Interval = 20 * time.Millisecond
	return i, writes
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func install(t *testing.T, i *Installer, s Settings) map[Change]int {
	t.Helper()
	results, err := i.Install(t.Context(), objects(t, s), false)
	if err != nil {
		t.Fatal(err)
	}
	count := map[Change]int{}
	for _, r := range results {
		count[r.Change]++
	}
	return count
}

// remaining lists what of the objects is there.
func remaining(t *testing.T, i *Installer) []string {
	t.Helper()
	var left []string
	for _, o := range objects(t, Settings{}) {
		client, err := at(i.Client, o)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Get(t.Context(), o.GetName(), metav1.GetOptions{})
		if err == nil {
			left = append(left, Name(o))
		} else if !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	return left
}

func patch(t *testing.T, i *Installer, o *unstructured.Unstructured, body string, subresources ...string) {
	t.Helper()
	client, err := at(i.Client, o)
	if err != nil {
		t.Fatal(err)
	}
	retryAdmission(t, i, func(ctx context.Context) error {
		_, err := client.Patch(ctx, o.GetName(), types.MergePatchType, []byte(body),
			metav1.PatchOptions{FieldManager: "test"}, subresources...)
		return err
	})
}

// retryAdmission repeats a request while admission that was deleted a moment ago is still asked.
func retryAdmission(t *testing.T, i *Installer, request func(context.Context) error) {
	t.Helper()
	err := i.poll(t.Context(), func(ctx context.Context) (bool, error) {
		err := request(ctx)
		if apierrors.IsInternalError(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestInstallAndUninstall(t *testing.T) {
	i, writes := installer(t, controlPlane(t))
	all := objects(t, Settings{})
	ctx := t.Context()

	t.Run("dry run", func(t *testing.T) {
		if err := i.Check(ctx); err != nil {
			t.Fatal(err)
		}
		results, err := i.Install(ctx, all, true)
		if err != nil || len(results) != len(all) {
			t.Fatalf("%d results: %v", len(results), err)
		}
		if left := remaining(t, i); left != nil {
			t.Errorf("stored all the same: %v", left)
		}
	})

	t.Run("first", func(t *testing.T) {
		writes.Store(0)
		if diff := cmp.Diff(map[Change]int{Created: len(all)}, install(t, i, Settings{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		// One each. The components add theirs; together they are to stay below 120.
		if n := writes.Load(); n > int64(len(all)) || n > 82 {
			t.Errorf("%d writes", n)
		}
		if err := i.Check(ctx); err != nil {
			t.Errorf("its own installation is in its way: %v", err)
		}
	})

	t.Run("again, with what others wrote", func(t *testing.T) {
		deleteAdmission(t, i, all) // whose server does not run here
		for _, o := range all {
			switch o.GetKind() {
			case "KubeVirt":
				patch(t, i, o, `{"spec":{"configuration":{"developerConfiguration":{"useEmulation":true}}}}`)
			case "APIService":
				patch(t, i, o, `{"spec":{"caBundle":"Y2VydA=="}}`)
			}
		}
		if diff := cmp.Diff(map[Change]int{Created: 2, Unchanged: len(all) - 2},
			install(t, i, Settings{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[Change]int{Unchanged: len(all)}, install(t, i, Settings{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		kv, err := i.Client.Resource(kubevirts).Namespace(names.Namespace).Get(ctx, names.KubeVirt, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if on, _, _ := unstructured.NestedBool(kv.Object, "spec",
			"configuration", "developerConfiguration", "useEmulation"); !on {
			t.Error("the administrator's configuration is gone")
		}
		service, err := i.Client.Resource(apiservices).Get(ctx, "v1.subresources.kubevirt.io", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if bundle, _, _ := unstructured.NestedString(service.Object, "spec", "caBundle"); bundle == "" {
			t.Error("virt-controller's caBundle is gone")
		}
	})

	t.Run("dry run of an upgrade", func(t *testing.T) {
		results, err := i.Install(ctx, objects(t, Settings{Tag: "v2"}), true)
		if err != nil {
			t.Fatal(err)
		}
		changes := map[Change]int{}
		for _, r := range results {
			changes[r.Change]++
		}
		if diff := cmp.Diff(map[Change]int{Configured: 4, Unchanged: len(all) - 4}, changes); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})

	t.Run("upgrade", func(t *testing.T) {
		if diff := cmp.Diff(map[Change]int{Configured: 4, Unchanged: len(all) - 4},
			install(t, i, Settings{Tag: "v2"})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})

	t.Run("too little time", func(t *testing.T) {
		late, end := clienttest.Late()
		config := rest.CopyConfig(i.Config)
		writes := 0
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.Method != http.MethodGet {
					if writes++; writes > 3 {
						end()
					}
				}
				return next.RoundTrip(r)
			})
		})
		slow, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		results, err := slow.Install(late, all, true)
		if want := fmt.Sprintf("timed out after 3 of %d objects", len(all)); len(results) != 3 ||
			!errors.Is(err, action.ErrTimeout) || err.Error() != want {
			t.Errorf("%d results: %v, want %s", len(results), err, want)
		}
	})

	t.Run("wait", func(t *testing.T) {
		short, end := clienttest.Late()
		i.Progress = func(string) { end() } // something was looked at
		err := i.Wait(short, all)
		i.Progress = nil
		if !errors.Is(err, ErrNotReady) || !errors.Is(err, action.ErrTimeout) ||
			!strings.Contains(err.Error(), "virt-api (0 of 2 ready)") {
			t.Errorf("not ready: %v", err)
		}
		for _, o := range all {
			switch o.GetKind() {
			case "Deployment":
				patch(t, i, o,
					`{"status":{"observedGeneration":9,"replicas":2,"updatedReplicas":2,"readyReplicas":2,"availableReplicas":2}}`, "status")
			case "DaemonSet":
				patch(t, i, o,
					`{"status":{"observedGeneration":9,"desiredNumberScheduled":1,"updatedNumberScheduled":1,"numberAvailable":1,"currentNumberScheduled":1,"numberMisscheduled":0,"numberReady":1}}`, "status")
			case "KubeVirt":
				patch(t, i, o, `{"status":{"conditions":[{"type":"Available","status":"True"}]}}`, "status")
			}
		}
		// No virt-api answers, so the API services stay unavailable; everything else is ready.
		missing, err := i.missing(ctx, all)
		if err != nil || len(missing) != 2 || !strings.HasPrefix(missing[0], "v1.subresources") {
			t.Errorf("missing %v: %v", missing, err)
		}
	})

	t.Run("uninstall refuses while there is a VM", func(t *testing.T) {
		deleteAdmission(t, i, all)
		create(t, i,
			`{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","metadata":{"name":"a","namespace":"default","finalizers":["kubevirt.io/virtualMachineControllerFinalize"]},
			"spec":{"runStrategy":"Halted","template":{"spec":{"domain":{"devices":{}}}}}}`)
		_, err := i.Uninstall(ctx, all, UninstallOptions{Wait: true})
		var guests *GuestsError
		if !errors.As(err, &guests) || len(guests.Names) != 1 || guests.Names[0] != "virtualmachine default/a" {
			t.Errorf("%v", err)
		}
		if left := remaining(t, i); len(left) < len(all)-2 {
			t.Errorf("only these are left: %v", left)
		}
	})

	t.Run("uninstall as a dry run", func(t *testing.T) {
		before := remaining(t, i)
		for _, dryRun := range []DryRun{DryRunClient, DryRunServer} {
			would, err := i.Uninstall(ctx, all, UninstallOptions{DeleteVMs: true, Wait: true, DryRun: dryRun})
			if err != nil || len(would) != len(before) {
				t.Errorf("%s: %d of %d objects: %v", dryRun, len(would), len(before), err)
			}
		}
		if left := remaining(t, i); len(left) != len(before) {
			t.Errorf("of %d objects %d are left", len(before), len(left))
		}
	})

	t.Run("uninstall with the VM, and no virt-controller to help", func(t *testing.T) {
		for _, o := range all {
			if o.GetName() == names.VirtController && o.GetKind() == "Deployment" {
				patch(t, i, o, `{"status":{"updatedReplicas":0,"readyReplicas":0,"availableReplicas":0}}`, "status")
			}
		}
		// Seconds, but for a definition whose deletion the API server's finalizer has missed: it looks again every five
		// minutes.
		limited, cancel := context.WithTimeout(ctx, 7*time.Minute)
		defer cancel()
		if _, err := i.Uninstall(limited, all, UninstallOptions{DeleteVMs: true, Wait: true}); err != nil {
			t.Fatal(err)
		}
		if left := remaining(t, i); left != nil {
			t.Errorf("left over: %v", left)
		}
		if installed, err := i.Installed(ctx, all); err != nil || installed {
			t.Errorf("installed %v: %v", installed, err)
		}
	})

	t.Run("another KubeVirt is left alone", func(t *testing.T) {
		crd := all[0].DeepCopy()
		for _, o := range all {
			if o.GetName() == "virtualmachines.kubevirt.io" {
				crd = o.DeepCopy()
			}
		}
		crd.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "virt-operator"})
		if _, err := i.Client.Resource(definitions).Create(ctx, crd, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := i.Check(ctx); !errors.Is(err, ErrUnsuitable) {
			t.Errorf("install: %v", err)
		}
		if _, err := i.Uninstall(ctx, all, UninstallOptions{DeleteVMs: true, Wait: true}); !errors.Is(err,
			ErrUnsuitable) {
			t.Errorf("uninstall: %v", err)
		}
		const definition = "customresourcedefinition.apiextensions.k8s.io/virtualmachines.kubevirt.io"
		if left := remaining(t, i); fmt.Sprint(left) != "["+definition+"]" {
			t.Errorf("left: %v", left)
		}
	})
}

func deleteAdmission(t *testing.T, i *Installer, all []*unstructured.Unstructured) {
	t.Helper()
	ordered := removalOrder(all)
	if _, err := i.deleteAll(t.Context(), ordered[:admissions(ordered)], ""); err != nil {
		t.Fatal(err)
	}
}

// create creates a VirtualMachine.
func create(t *testing.T, i *Installer, text string) {
	t.Helper()
	vm := object(t, text)
	retryAdmission(t, i, func(ctx context.Context) error {
		_, err := i.Client.Resource(schema.GroupVersionResource{
			Group: "kubevirt.io", Version: "v1", Resource: "virtualmachines",
		}).Namespace(vm.GetNamespace()).Create(ctx, vm, metav1.CreateOptions{})
		return err
	})
}
