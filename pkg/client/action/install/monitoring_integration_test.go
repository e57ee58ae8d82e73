//go:build integration

package install

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/names"
)

// operator defines the kinds of the Prometheus operator that count here.
func operator(t *testing.T, i *Installer) {
	t.Helper()
	for plural, kind := range map[string]string{
		"servicemonitors": "ServiceMonitor",
		"prometheusrules": "PrometheusRule",
		"prometheuses":    "Prometheus",
	} {
		crd := &unstructured.Unstructured{}
		text := fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.monitoring.coreos.com, annotations: {api-approved.kubernetes.io: unapproved}}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {plural: %[1]s, kind: %[2]s, listKind: %[2]sList, singular: %[3]s}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`, plural, kind, lower(kind))
		if err := yaml.Unmarshal([]byte(text), &crd.Object); err != nil {
			t.Fatal(err)
		}
		result, err := i.apply(t.Context(), crd, false)
		if err == nil {
			err = i.waitEstablished(t.Context(), []Result{result})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := i.poll(t.Context(), i.Monitored); err != nil { // discovery trails the condition Established
		t.Fatalf("wait for discovery of the operator's kinds: %v", err)
	}
}

func put(t *testing.T, i *Installer, resource schema.GroupVersionResource, ns, text string) {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	if _, err := i.Client.Resource(resource).Namespace(ns).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// The Prometheus operator is told where it is, with the right account; and what it was told goes with the rest.
func TestMonitoring(t *testing.T) {
	i, _ := installer(t, controlPlane(t))
	ctx := t.Context()
	if more, note, err := i.AddMonitoring(ctx, MonitoringAuto); err != nil || more != nil || note != "" {
		t.Fatalf("without the operator: %v, %q, %v", more, note, err)
	}
	if _, _, err := i.AddMonitoring(ctx, MonitoringAlways); !errors.Is(err, ErrNoMonitoring) {
		t.Fatalf("always, without the operator: %v", err)
	}
	operator(t, i)
	if more, _, err := i.AddMonitoring(ctx, MonitoringNever); err != nil || more != nil {
		t.Fatalf("never: %v, %v", more, err)
	}
	more, note, err := i.AddMonitoring(ctx, MonitoringAuto)
	if err != nil || note == "" || len(more) == 0 {
		t.Fatalf("nobody knows the account: %d objects, %q, %v", len(more), note, err)
	}
	account := func(want Account, found bool) {
		t.Helper()
		got, ok, err := i.PrometheusAccount(ctx)
		if err != nil || got != want || ok != found {
			t.Errorf("account %v, found %v, %v; want %v", got, ok, err, want)
		}
	}
	account(DefaultAccount, false)
	put(t, i, namespaces, "", `{apiVersion: v1, kind: Namespace, metadata: {name: monitoring}}`)
	put(t, i, serviceAccounts, "monitoring", `{apiVersion: v1, kind: ServiceAccount, metadata: {name: prometheus-k8s}}`)
	account(DefaultAccount, true)
	put(t, i, namespaces, "", `{apiVersion: v1, kind: Namespace, metadata: {name: prom}}`)
	put(t, i, prometheuses, "prom",
		`{apiVersion: monitoring.coreos.com/v1, kind: Prometheus, metadata: {name: p}, spec: {serviceAccountName: stack-prometheus}}`)
	account(Account{"prom", "stack-prometheus"}, true)

	more, note, err = i.AddMonitoring(ctx, MonitoringAuto)
	if err != nil || note != "" {
		t.Fatalf("%q, %v", note, err)
	}
	everything := append(objects(t, Settings{}), more...)
	if _, err := i.Install(ctx, everything, false); err != nil {
		t.Fatal(err)
	}
	binding, err := i.Client.Resource(rbac("clusterrolebindings")).Get(ctx, "kubevirt.io:metrics-reader",
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	subjects, _, err := unstructured.NestedSlice(binding.Object, "subjects")
	if err != nil || fmt.Sprint(subjects) != "[map[kind:ServiceAccount name:stack-prometheus namespace:prom]]" {
		t.Errorf("subjects %v, %v", subjects, err)
	}
	if results, err := i.Install(ctx, everything, false); err != nil {
		t.Fatal(err)
	} else {
		for _, r := range results {
			if r.Change != Unchanged {
				t.Errorf("%s is %s by installing again", Name(r.Object), r.Change)
			}
		}
	}
	if _, err := i.Uninstall(ctx, everything, UninstallOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = i.Client.Resource(monitors).Namespace(names.Namespace).Get(ctx, "prometheus-kubevirt-rules",
		metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the ServiceMonitor after uninstalling: %v", err)
	}
}
