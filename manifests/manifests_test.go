package manifests_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	psa "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/manifests"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/config"
)

// decode reads every object of the embedded files that match a pattern.
func decode(t *testing.T, pattern string) []*unstructured.Unstructured {
	t.Helper()
	files, err := fs.Glob(manifests.FS, pattern)
	if err != nil {
		t.Fatal(err)
	}
	var all []*unstructured.Unstructured
	for _, name := range files {
		if strings.HasSuffix(name, "kustomization.yaml") {
			continue
		}
		text, err := manifests.FS.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
		for {
			o := &unstructured.Unstructured{}
			err := decoder.Decode(o)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			all = append(all, o)
		}
	}
	return all
}

// find returns the one object of a kind and name as its Go type; unknown fields fail.
func find[T any](t *testing.T, kind, name string) *T {
	t.Helper()
	for _, o := range decode(t, "base/*.yaml") {
		if o.GetKind() == kind && o.GetName() == name {
			return typed[T](t, o)
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return nil
}

func typed[T any](t *testing.T, o *unstructured.Unstructured) *T {
	t.Helper()
	into := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, into, true); err != nil {
		t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
	}
	return into
}

func TestEveryObjectIsMarkedOurs(t *testing.T) {
	for _, o := range append(decode(t, "crds/*.yaml"), decode(t, "base/*.yaml")...) {
		if o.GetLabels()["app.kubernetes.io/part-of"] != "virtkit" {
			t.Errorf("%s %s lacks app.kubernetes.io/part-of: virtkit, so uninstalling would leave it", o.GetKind(),
				o.GetName())
		}
		if ns := o.GetNamespace(); ns != "" && ns != names.Namespace && ns != "kube-system" {
			t.Errorf("%s %s is in namespace %s", o.GetKind(), o.GetName(), ns)
		}
	}
}

func TestNamesAreThoseOfTheCode(t *testing.T) {
	find[corev1.Namespace](t, "Namespace", names.Namespace)
	find[v1.KubeVirt](t, "KubeVirt", names.KubeVirt)
	for _, component := range []string{
		names.VirtAPI, names.VirtController, names.VirtHandler, names.VirtExportProxy,
	} {
		find[corev1.ServiceAccount](t, "ServiceAccount", component)
	}
	find[admissionv1.MutatingWebhookConfiguration](t, "MutatingWebhookConfiguration", names.MutatingWebhook)
	find[admissionv1.ValidatingWebhookConfiguration](t, "ValidatingWebhookConfiguration", names.ValidatingWebhook)
	if host := names.VirtAPI + "." + names.Namespace + ".svc"; names.DNSNameAPI != host {
		t.Errorf("virt-api's certificate is for %s, its Service is %s", names.DNSNameAPI, host)
	}
}

type workload struct {
	name     string
	template corev1.PodTemplateSpec
	port     int32
	level    psa.Level
}

func workloads(t *testing.T) []workload {
	api := find[appsv1.Deployment](t, "Deployment", names.VirtAPI)
	controller := find[appsv1.Deployment](t, "Deployment", names.VirtController)
	handler := find[appsv1.DaemonSet](t, "DaemonSet", names.VirtHandler)
	proxy := find[appsv1.Deployment](t, "Deployment", names.VirtExportProxy)
	return []workload{
		{names.VirtAPI, api.Spec.Template, names.PortAPI, psa.LevelRestricted},
		{names.VirtController, controller.Spec.Template, 0, psa.LevelRestricted},
		{names.VirtHandler, handler.Spec.Template, names.PortHandler, psa.LevelPrivileged},
		{names.VirtExportProxy, proxy.Spec.Template, names.ExportProxyPort, psa.LevelRestricted},
	}
}

func TestWorkloads(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range workloads(t) {
		t.Run(w.name, func(t *testing.T) {
			if w.template.Labels[names.LabelComponent] != w.name {
				t.Errorf("pods are not labelled %s=%s", names.LabelComponent, w.name)
			}
			if w.template.Spec.ServiceAccountName != w.name {
				t.Errorf("service account is %q", w.template.Spec.ServiceAccountName)
			}
			container := w.template.Spec.Containers[0]
			if container.SecurityContext.ReadOnlyRootFilesystem == nil ||
				!*container.SecurityContext.ReadOnlyRootFilesystem {
				t.Error("the root file system is writable")
			}
			if container.Resources.Limits.Memory().IsZero() {
				t.Error("its memory has no limit, so that what grows takes the node's")
			}
			if !slices.ContainsFunc(container.Env, func(e corev1.EnvVar) bool {
				return e.Name == config.EnvMemoryLimit && e.ValueFrom.ResourceFieldRef.Resource == "limits.memory" ||
					e.Name == "GOMEMLIMIT" && below(t, e.Value, container.Resources.Limits.Memory())
			}) {
				t.Errorf("neither %s nor GOMEMLIMIT tells it its limit", config.EnvMemoryLimit)
			}
			ports := map[string]int32{}
			for _, p := range container.Ports {
				ports[p.Name] = p.ContainerPort
			}
			if ports["health"] != names.PortHealth {
				t.Errorf("health port %d, want %d", ports["health"], names.PortHealth)
			}
			if w.port != 0 &&
				!slices.ContainsFunc(container.Ports, func(p corev1.ContainerPort) bool {
					return p.ContainerPort == w.port
				}) {
				t.Errorf("port %d is not declared", w.port)
			}
			for _, result := range evaluator.EvaluatePod(psa.LevelVersion{Level: w.level, Version: psa.LatestVersion()},
				&w.template.ObjectMeta, &w.template.Spec) {
				if !result.Allowed {
					t.Errorf("Pod Security %s: %s: %s", w.level, result.ForbiddenReason, result.ForbiddenDetail)
				}
			}
		})
	}
}

// below reports whether a limit of the Go runtime, for a program that reads no configuration, leaves a tenth of the
// container's for what the garbage collector does not see.
func below(t *testing.T, text string, limit *resource.Quantity) bool {
	t.Helper()
	soft, err := resource.ParseQuantity(strings.TrimSuffix(text, "B")) // MiB is Mi
	if err != nil {
		t.Fatal(err)
	}
	return soft.Sign() > 0 && soft.Value() <= limit.Value()/10*9
}

// Each component has a policy of its own; only those whom a port is for reach virt-handler's.
func TestNetworkPolicies(t *testing.T) {
	for _, w := range workloads(t) {
		p := find[networkingv1.NetworkPolicy](t, "NetworkPolicy", w.name)
		if !maps.Equal(p.Spec.PodSelector.MatchLabels, map[string]string{names.LabelComponent: w.name}) {
			t.Errorf("%s: selects %v", w.name, p.Spec.PodSelector)
		}
		if !slices.Equal(p.Spec.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}) {
			t.Errorf("%s: is for %v", w.name, p.Spec.PolicyTypes)
		}
		open := map[string]string{} // port -> who, empty for anybody
		for _, rule := range p.Spec.Ingress {
			who := ""
			for _, from := range rule.From {
				if from.NamespaceSelector != nil || from.IPBlock != nil || from.PodSelector == nil {
					t.Errorf("%s: lets in %+v", w.name, from)
					continue
				}
				who = from.PodSelector.MatchLabels[names.LabelComponent]
			}
			for _, port := range rule.Ports {
				declared := slices.ContainsFunc(w.template.Spec.Containers[0].Ports, func(c corev1.ContainerPort) bool {
					return c.Name == port.Port.StrVal
				})
				if !declared {
					t.Errorf("%s: port %s is not the pod's", w.name, port.Port)
				}
				open[port.Port.StrVal] = who
			}
		}
		want := map[string]map[string]string{
			names.VirtAPI:         {"https": ""},
			names.VirtController:  {"metrics": ""},
			names.VirtHandler:     {"metrics": "", "streams": names.VirtAPI, "migration": names.VirtHandler},
			names.VirtExportProxy: {"https": ""},
		}[w.name]
		if !maps.Equal(open, want) {
			t.Errorf("%s: lets in %v, want %v", w.name, open, want)
		}
	}
}

// virt-exportproxy has no pod before something leads to it, and its Service has the name by which KubeVirt's users lead
// there.
func TestExportProxy(t *testing.T) {
	proxy := find[appsv1.Deployment](t, "Deployment", names.VirtExportProxy)
	if proxy.Spec.Replicas == nil || *proxy.Spec.Replicas != 0 {
		t.Errorf("replicas %v", proxy.Spec.Replicas)
	}
	service := find[corev1.Service](t, "Service", names.VirtExportProxy)
	if !maps.Equal(service.Spec.Selector, proxy.Spec.Selector.MatchLabels) || len(service.Spec.Ports) != 1 ||
		service.Spec.Ports[0].Port != 443 || service.Spec.Ports[0].TargetPort.String() != "https" {
		t.Errorf("%+v", service.Spec)
	}
	if host := names.VirtExportProxy + "." + names.Namespace + ".svc"; names.DNSNameExportProxy != host {
		t.Errorf("its certificate is for %s, its Service is %s", names.DNSNameExportProxy, host)
	}
	pod := proxy.Spec.Template.Spec
	if pod.Volumes[0].Secret.SecretName != names.ExportProxyCertSecret ||
		pod.Containers[0].VolumeMounts[0].MountPath != names.ExportProxyCertDir {
		t.Errorf("%+v, %+v", pod.Volumes, pod.Containers[0].VolumeMounts)
	}
}

func TestServicePort(t *testing.T) {
	service := find[corev1.Service](t, "Service", names.VirtAPI)
	if len(service.Spec.Ports) != 1 || service.Spec.Ports[0].TargetPort.String() != "https" ||
		service.Spec.Ports[0].Port != 443 {
		t.Errorf("ports %+v; %s is to serve 443 from port https, %s", service.Spec.Ports, names.VirtAPI,
			strconv.Itoa(names.PortAPI))
	}
}

func TestWebhooks(t *testing.T) {
	mutating := find[admissionv1.MutatingWebhookConfiguration](t, "MutatingWebhookConfiguration", names.MutatingWebhook)
	validating := find[admissionv1.ValidatingWebhookConfiguration](t, "ValidatingWebhookConfiguration",
		names.ValidatingWebhook)
	check := func(name string, client admissionv1.WebhookClientConfig, failure *admissionv1.FailurePolicyType,
		rules []admissionv1.RuleWithOperations,
	) {
		if client.Service == nil || client.Service.Name != names.VirtAPI ||
			client.Service.Namespace != names.Namespace {
			t.Errorf("%s is served by %+v", name, client.Service)
		}
		if client.CABundle != nil {
			t.Errorf("%s has a caBundle, which is virt-controller's to write", name)
		}
		if failure == nil || *failure != admissionv1.Fail {
			t.Errorf("%s lets unchecked objects pass", name)
		}
		for _, r := range rules {
			for _, resource := range r.Resources {
				if strings.Contains(resource, "/") || strings.Contains(resource, "*") {
					t.Errorf("%s stands in the way of %s", name, resource)
				}
			}
		}
	}
	for _, w := range mutating.Webhooks {
		check(w.Name, w.ClientConfig, w.FailurePolicy, w.Rules)
	}
	for _, w := range validating.Webhooks {
		if slices.Equal(w.Rules[0].Resources, []string{"pods/eviction"}) {
			// It stands in the way of no drain: without an answer the budgets of the guests decide. And it asks about
			// our pods only.
			if len(w.Rules) != 1 || w.FailurePolicy == nil || *w.FailurePolicy != admissionv1.Ignore ||
				len(w.MatchConditions) == 0 {
				t.Errorf("%s: rules %v, failure policy %v, match conditions %v", w.Name, w.Rules, w.FailurePolicy,
					w.MatchConditions)
			}
			check(w.Name, w.ClientConfig, new(admissionv1.Fail), nil)
			continue
		}
		check(w.Name, w.ClientConfig, w.FailurePolicy, w.Rules)
	}
}

// A component's Role may name only Secrets that are its own; virt-handler has none.
var secretsOf = map[string][]string{
	names.VirtAPI: {names.APICertSecret},
	names.VirtController: {
		names.CASecret, names.APICertSecret, names.OldHandlerCertSecret, names.ControllerCertSecret,
		names.ExportProxyCertSecret,
	},
}

func TestRights(t *testing.T) {
	for _, o := range decode(t, "base/*.yaml") {
		if o.GetKind() != "ClusterRole" && o.GetKind() != "Role" {
			continue
		}
		role := typed[rbacv1.Role](t, o)
		for _, rule := range role.Rules {
			what := [][]string{rule.APIGroups, rule.Resources, rule.Verbs}
			if len(rule.NonResourceURLs) > 0 { // paths, for people
				what = [][]string{rule.NonResourceURLs, rule.Verbs}
			}
			for _, words := range what {
				if len(words) == 0 ||
					slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, "*") }) {
					t.Errorf("%s %s: a rule is empty or has a wildcard: %v", o.GetKind(), o.GetName(), rule)
				}
			}
			if !slices.Contains(rule.Resources, "secrets") || slices.Equal(rule.Verbs, []string{"create"}) {
				continue
			}
			own, component := secretsOf[o.GetName()]
			switch {
			case o.GetKind() == "ClusterRole" || !component:
				t.Errorf("%s %s reads Secrets of the cluster", o.GetKind(), o.GetName())
			case o.GetName() == names.VirtController && slices.Equal(rule.Verbs, []string{"get"}) &&
				len(rule.ResourceNames) == 0:
				// The one that an Ingress names has the certificate of exports' external links. It makes pods in each
				// namespace, which may mount any Secret, so that it can do no more with this.
			case len(rule.ResourceNames) == 0:
				t.Errorf("%s %s reads all Secrets of its namespace", o.GetKind(), o.GetName())
			}
			for _, secret := range rule.ResourceNames {
				if !slices.Contains(own, secret) {
					t.Errorf("%s %s reads Secret %s", o.GetKind(), o.GetName(), secret)
				}
			}
		}
	}
}
