package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/manifests"
	"github.com/virtkit/virtkit/pkg/names"
)

// monitoringGroup is the Prometheus operator's.
const monitoringGroup = "monitoring.coreos.com"

var (
	monitors        = schema.GroupVersionResource{Group: monitoringGroup, Version: "v1", Resource: "servicemonitors"}
	prometheusRules = schema.GroupVersionResource{Group: monitoringGroup, Version: "v1", Resource: "prometheusrules"}
	prometheuses    = schema.GroupVersionResource{Group: monitoringGroup, Version: "v1", Resource: "prometheuses"}
	serviceAccounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
)

// Account is the ServiceAccount of a Prometheus.
type Account struct{ Namespace, Name string }

// DefaultAccount is kube-prometheus', and KubeVirt's default.
var DefaultAccount = Account{"monitoring", "prometheus-k8s"}

// openShift is where that account is on OpenShift.
const openShift = "openshift-monitoring"

// MonitoringObjects returns the objects for the Prometheus operator and Grafana: manifests/monitoring, with who may
// read the metrics. Where the API server does not know monitoring.coreos.com they cannot be applied.
func MonitoringObjects(account Account) ([]*unstructured.Unstructured, error) {
	objects, err := load("monitoring")
	if err != nil {
		return nil, fmt.Errorf("manifests: %w", err)
	}
	for _, o := range objects {
		subjects, found, err := unstructured.NestedSlice(o.Object, "subjects")
		if err != nil || !found {
			continue
		}
		for _, s := range subjects {
			if subject, ok := s.(map[string]any); ok {
				subject["namespace"], subject["name"] = account.Namespace, account.Name
			}
		}
		if err := unstructured.SetNestedSlice(o.Object, subjects, "subjects"); err != nil {
			return nil, fmt.Errorf("manifests: %s: %w", Name(o), err)
		}
	}
	dashboard, err := manifests.FS.ReadFile("monitoring/dashboard.json")
	if err != nil {
		return nil, fmt.Errorf("manifests: %w", err)
	}
	return append(objects, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{
			"name": "kubevirt-dashboard", "namespace": names.Namespace,
			"labels": map[string]any{"grafana_dashboard": "1", partOfLabel: partOf},
		},
		"data": map[string]any{"dashboard.json": string(dashboard)},
	}}), nil
}

// Monitored reports whether the cluster has the Prometheus operator's API.
func (i *Installer) Monitored(ctx context.Context) (bool, error) {
	raw, err := i.get(ctx, "/apis", monitors.Group, monitors.Version)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the Prometheus operator: %w", err)
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(raw, &list); err != nil {
		return false, fmt.Errorf("look for the Prometheus operator: %w", err)
	}
	needed := 0
	for _, r := range list.APIResources {
		if r.Name == monitors.Resource || r.Name == prometheusRules.Resource {
			needed++
		}
	}
	return needed == 2, nil
}

// PrometheusAccount finds who is to read the metrics: whom the KubeVirt resource names (spec.monitorNamespace,
// spec.monitorAccount), the account of the one Prometheus resource, or kube-prometheus'. found is false when it is only
// the default, and is not there.
func (i *Installer) PrometheusAccount(ctx context.Context) (account Account, found bool, err error) {
	kv, err := i.kubeVirt(ctx)
	if err != nil {
		return Account{}, false, err
	}
	named := Account{kv.Spec.MonitorNamespace, kv.Spec.MonitorAccount}
	if named.Namespace != "" {
		if named.Name == "" {
			named.Name = DefaultAccount.Name
		}
		return named, true, nil
	}
	list, err := i.Client.Resource(prometheuses).List(ctx, metav1.ListOptions{Limit: 2})
	if err != nil && !apierrors.IsNotFound(err) {
		return Account{}, false, fmt.Errorf("look for Prometheus: %w", err)
	}
	if err == nil && len(list.Items) == 1 && named.Name == "" {
		o := &list.Items[0]
		name, _, _ := unstructured.NestedString(o.Object, "spec", "serviceAccountName") // of any other type it is none
		if name != "" {
			return Account{o.GetNamespace(), name}, true, nil
		}
	}
	if named.Name == "" {
		named.Name = DefaultAccount.Name
	}
	for _, namespace := range []string{DefaultAccount.Namespace, openShift} {
		_, err := i.Client.Resource(serviceAccounts).Namespace(namespace).Get(ctx, named.Name, metav1.GetOptions{})
		if err == nil {
			return Account{namespace, named.Name}, true, nil
		}
		if !apierrors.IsNotFound(err) {
			return Account{}, false, fmt.Errorf("look for Prometheus' ServiceAccount: %w", err)
		}
	}
	return Account{DefaultAccount.Namespace, named.Name}, false, nil
}

// kubeVirt reads the KubeVirt resource; it is empty when there is none yet.
func (i *Installer) kubeVirt(ctx context.Context) (*v1.KubeVirt, error) {
	kv := &v1.KubeVirt{}
	o, err := i.Client.Resource(kubevirts).Namespace(names.Namespace).Get(ctx, names.KubeVirt, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return kv, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the KubeVirt resource: %w", err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, kv); err != nil {
		return nil, fmt.Errorf("read the KubeVirt resource: %w", err)
	}
	return kv, nil
}

// Monitoring is whether an installation is to be seen by the Prometheus operator.
type Monitoring string

const (
	// MonitoringAuto: where the operator's API is.
	MonitoringAuto Monitoring = "auto"
	// MonitoringAlways: it is an error when that is not there.
	MonitoringAlways Monitoring = "always"
	MonitoringNever  Monitoring = "never"
)

// ErrNoMonitoring is an installation that was to have monitoring on a cluster without the Prometheus operator.
var ErrNoMonitoring = errors.New("the cluster has no API " + monitoringGroup + "/v1")

// AddMonitoring gives what to install besides, for a cluster that may have the Prometheus operator, and a note for the
// user, which may be empty.
func (i *Installer) AddMonitoring(
	ctx context.Context, m Monitoring,
) (objects []*unstructured.Unstructured, note string, err error) {
	if m == MonitoringNever {
		return nil, "", nil
	}
	there, err := i.Monitored(ctx)
	if err != nil {
		return nil, "", err
	}
	if !there {
		if m == MonitoringAlways {
			return nil, "",
				fmt.Errorf("%w: install the Prometheus operator first, or leave monitoring out", ErrNoMonitoring)
		}
		return nil, "", nil
	}
	account, found, err := i.PrometheusAccount(ctx)
	if err != nil {
		return nil, "", err
	}
	if !found {
		note = fmt.Sprintf("which ServiceAccount Prometheus has is not known: the right to read metrics went to "+
			"%s/%s; set spec.monitorNamespace and spec.monitorAccount of the KubeVirt resource, and install again",
			account.Namespace, account.Name)
	}
	objects, err = MonitoringObjects(account)
	return objects, note, err
}
