package doctor

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/version"
	"github.com/virtkit/virtkit/pkg/vm/claims"
)

var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// allPolicies are those that are to be there.
func allPolicies() Policies {
	all, err := shipped()
	if err != nil {
		panic(err)
	}
	return all
}

// healthy is a cluster with two nodes where all is well.
func healthy() Facts {
	class := storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{
			Name: "local", Annotations: map[string]string{claims.DefaultClassAnnotation: "true"},
		},
		Provisioner: "driver",
	}
	return Facts{
		Now: now, Namespace: "default", RoundTrip: 3 * time.Millisecond,
		Program: Program{
			Version: version.Info{GitVersion: "v1"}, Name: "virtctl", Context: "here", Server: "https://here:6443",
			CertNotAfter: now.Add(1000 * time.Hour),
			Path:         map[string]string{"kubectl": "k", "kubectl-virt": "v", "kubectl_complete-virt": "c"},
		},
		Server:    Read[apiversion.Info]{Value: apiversion.Info{Major: "1", Minor: "37", GitVersion: "v1.37.1"}},
		VirtAPI:   Read[version.Info]{Value: version.Info{GitVersion: "v1"}},
		Resources: Read[[]string]{Value: expected},
		KubeVirt: Read[*v1.KubeVirt]{
			Value: &v1.KubeVirt{
				ObjectMeta: metav1.ObjectMeta{Name: "kubevirt"},
				Status:     v1.KubeVirtStatus{Phase: v1.KubeVirtPhaseDeployed},
			},
		},
		Pods: Read[[]corev1.Pod]{
			Value: []corev1.Pod{
				pod(names.VirtAPI, "one"), pod(names.VirtController, "two"), pod(names.VirtHandler, "one"),
				pod(names.VirtHandler, "two"),
			},
		},
		Authorities: Read[[]Certificate]{
			Value: []Certificate{{NotAfter: now.Add(-time.Hour)}, {NotAfter: now.Add(1000 * time.Hour)}},
		},
		Policies:        Read[Policies]{Value: allPolicies()},
		SnapshotDrivers: Read[[]string]{Value: []string{"driver"}},
		StorageClasses:  Read[[]storagev1.StorageClass]{Value: []storagev1.StorageClass{class}},
		Nodes:           Read[[]corev1.Node]{Value: []corev1.Node{machine("one"), machine("two")}},
	}
}

func pod(component, node string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: component + "-" + node, Labels: map[string]string{names.LabelComponent: component},
		},
		Spec: corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

func machine(name string) corev1.Node {
	beat := now.Add(-20 * time.Second)
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{v1.NodeSchedulable: "true"},
			Annotations: map[string]string{
				v1.VirtHandlerHeartbeat: `"` + beat.Format(time.RFC3339) + `"`,
				names.AnnotationHost:    `{"kvm":true,"module":"kvm_amd","nested":true}`,
			},
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Time:     &metav1.Time{Time: beat.Add(time.Second)},
				FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:kubevirt.io/heartbeat":{}}}}`),
			}},
		},
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{
				KubeletVersion: "v1.37.1", ContainerRuntimeVersion: "containerd://2.4.2+unknown",
			},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Allocatable: corev1.ResourceList{
				names.ResourceKVM: resource.MustParse("100"), corev1.ResourceMemory: resource.MustParse("8Gi"),
				corev1.ResourceCPU: resource.MustParse("4"),
				"hugepages-2Mi":    resource.MustParse("64Mi"),
			},
		},
	}
}

func TestHealthy(t *testing.T) {
	r := Examine(healthy())
	for _, c := range r.Checks {
		if c.Status != OK || c.Message == "" {
			t.Errorf("%+v", c)
		}
	}
	if r.Status != OK || r.Kind != Kind || len(r.Checks) < 18 {
		t.Errorf("status %s, %d checks", r.Status, len(r.Checks))
	}
}

func TestChecks(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no"))
	first := func(f *Facts) *corev1.Node { return &f.Nodes.Value[0] }
	cases := []struct {
		name    string
		make    func(*Facts)
		check   string
		status  Status
		message string
		fix     string
	}{
		{"no kubectl", func(f *Facts) { f.Program.Path = nil }, "kubectl", OK, "nothing here needs it", ""},
		{
			"no plugin", func(f *Facts) { delete(f.Program.Path, "kubectl-virt") }, "kubectl", Warning,
			"no kubectl-virt", "ln -s",
		},
		{
			"no completion", func(f *Facts) { delete(f.Program.Path, "kubectl_complete-virt") }, "kubectl", Warning,
			"not completed", "plugins/",
		},
		{
			"certificate expired", func(f *Facts) { f.Program.CertNotAfter = now.Add(-3 * time.Hour) }, "credentials",
			Failed, "expired 3h ago", "kubeconfig",
		},
		{
			"certificate expires", func(f *Facts) { f.Program.CertNotAfter = now.Add(50 * time.Hour) }, "credentials",
			Warning, "in 2d", "kubeconfig",
		},
		{
			"cluster is off", func(f *Facts) { f.Server.Err = errors.New("connection refused") }, "connection", Failed,
			"connection refused", "start the cluster",
		},
		{"cluster is off, explained", func(f *Facts) {
			f.Server.Err = errors.New("Get https://x: dial tcp")
			f.Explain = func(error) string { return "cannot reach the cluster at https://x" }
		}, "connection", Failed, "cannot reach the cluster at https://x", "start the cluster"},
		{
			"logged out", func(f *Facts) { f.Server.Err = apierrors.NewUnauthorized("no") }, "connection", Failed,
			"does not answer", "log in",
		},
		{
			"slow network", func(f *Facts) { f.RoundTrip = 2 * time.Second }, "connection", Warning, "answers in 2s",
			"slow",
		},
		{
			"own clock", func(f *Facts) { f.Behind = 90 * time.Second }, "clock", Warning,
			"1m30s ahead of the cluster's", "NTP",
		},
		{"Kubernetes is old", func(f *Facts) { f.Server.Value.Minor = "33+" }, "version", Failed, "too old", "upgrade"},
		{
			"no VolumeSnapshotClass", func(f *Facts) { f.SnapshotDrivers.Value = nil }, "snapshots", Warning,
			"no VolumeSnapshotClass", "create a VolumeSnapshotClass",
		},
		{
			"no snapshot kinds", func(f *Facts) { f.SnapshotDrivers = Read[[]string]{Err: ErrNoSnapshots} },
			"snapshots", Warning, "cannot be snapshotted", "snapshot controller",
		},
		{
			"a driver without a class", func(f *Facts) { f.SnapshotDrivers.Value = []string{"other"} }, "snapshots", OK,
			"not those of StorageClass local", "",
		},
		{
			"no StorageClass", func(f *Facts) { f.StorageClasses.Value = nil }, "storage", Warning, "no StorageClass",
			"provisioner",
		},
		{
			"no default StorageClass", func(f *Facts) { f.StorageClasses.Value[0].Annotations = nil }, "storage",
			Warning, "no StorageClass is the default", "kubectl annotate",
		},
		{
			"not installed", func(f *Facts) { f.Resources.Err = action.ErrNotInstalled }, "installed", Failed,
			"not installed", "virtctl install",
		},
		{
			"a resource is missing", func(f *Facts) { f.Resources.Value = expected[1:] }, "resources", Failed,
			"kubevirts", "virtctl install",
		},
		{
			"no KubeVirt", func(f *Facts) { f.KubeVirt.Value = nil }, "phase", Failed, "no KubeVirt resource",
			"virtctl install",
		},
		{
			"deploying", func(f *Facts) { f.KubeVirt.Value.Status.Phase = v1.KubeVirtPhaseDeploying }, "phase", Warning,
			"Deploying", "get pods",
		},
		{
			"controller absent", func(f *Facts) { f.Pods.Value = slices.Delete(f.Pods.Value, 1, 2) },
			names.VirtController, Failed, "does not run", "virtctl install",
		},
		{"an evicted pod is left", func(f *Facts) {
			left := pod(names.VirtAPI, "one")
			left.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}
			f.Pods.Value = append(f.Pods.Value, left)
		}, names.VirtAPI, OK, "1 of 1 pods are ready", ""},
		{
			"api not ready", func(f *Facts) { f.Pods.Value[0].Status.Conditions = nil }, names.VirtAPI, Failed,
			"none of 1 pods", "logs deployment/virt-api",
		},
		{
			"api restarts",
			func(f *Facts) { f.Pods.Value[0].Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 9}} },
			names.VirtAPI, Warning, "restarted 9 times", "--previous",
		},
		{
			"pods may not be read", func(f *Facts) { f.Pods = Read[[]corev1.Pod]{Err: forbidden} }, "components",
			Skipped, "not looked at: ", "",
		},
		{
			"aggregated API is down", func(f *Facts) { f.VirtAPI.Err = errors.New("503") }, "subresources", Failed,
			"does not answer", "kubectl get apiservice",
		},
		{
			"the aggregated API may not be asked", func(f *Facts) { f.VirtAPI.Err = forbidden }, "subresources",
			Skipped, "not looked at: ", "",
		},
		{
			"versions differ", func(f *Facts) { f.VirtAPI.Value.GitVersion = "v2" }, "subresources", Warning,
			"virt-api is v2, this program is v1", "virtctl install",
		},
		{
			"webhook is down", func(f *Facts) { f.Admission = errors.New("failed calling webhook") }, "admission",
			Failed, "not admitted", "webhookconfigurations",
		},
		{"may not create VMs", func(f *Facts) { f.Admission = forbidden }, "admission", Skipped, "not looked at: ", ""},
		{
			"authority expired", func(f *Facts) { f.Authorities.Value = f.Authorities.Value[:1] }, "certificates",
			Failed, "expired 60m ago", "virt-controller",
		},
		{
			"no authority", func(f *Facts) { f.Authorities.Value = nil }, "certificates", Failed,
			"no certificate authority", "virt-controller",
		},
		{
			"no policies", func(f *Facts) { f.Policies.Value = Policies{} }, "policies", Failed,
			"virtkit-virt-handler-nodes", "virtctl install",
		},
		{
			"a policy is not bound", func(f *Facts) { delete(f.Policies.Value.Bindings, "virtkit-virt-handler-nodes") },
			"policies", Failed, "the binding of virtkit-virt-handler-nodes", "virtctl install",
		},
		{"a policy does not refuse", func(f *Facts) {
			b := f.Policies.Value.Bindings["virtkit-virt-handler-nodes"]
			b.ValidationActions = []admissionv1.ValidationAction{admissionv1.Audit}
			f.Policies.Value.Bindings["virtkit-virt-handler-nodes"] = b
		}, "policies", Warning, "the binding of virtkit-virt-handler-nodes", "virtctl install"},
		{"a policy is another", func(f *Facts) {
			p := f.Policies.Value.Policies["virtkit-virt-handler-nodes"]
			p.Validations = nil
			f.Policies.Value.Policies["virtkit-virt-handler-nodes"] = p
		}, "policies", Warning, "virtkit-virt-handler-nodes", "virtctl install"},
		{
			"policies may not be read", func(f *Facts) { f.Policies = Read[Policies]{Err: forbidden} }, "policies",
			Skipped, "not looked at: ", "",
		},
		{
			"nodes may not be read", func(f *Facts) { f.Nodes = Read[[]corev1.Node]{Err: forbidden} }, "nodes", Skipped,
			"(kubelet, virt-handler, KVM, memory and clock of each) are not looked at: ", "",
		},
		{"no network plugin", func(f *Facts) {
			first(f).Status.Conditions[0] = corev1.NodeCondition{
				Type: corev1.NodeReady, Status: corev1.ConditionFalse,
				Message: "NetworkPluginNotReady: cni plugin not initialized",
			}
		}, "ready", Failed, "no pod network (CNI)", "kubectl describe node one"},
		{
			"containerd is old",
			func(f *Facts) { first(f).Status.NodeInfo.ContainerRuntimeVersion = "containerd://2.0.5" }, "runtime",
			Failed, "cannot mount images", "2.1",
		},
		{
			"cordoned", func(f *Facts) { first(f).Spec.Unschedulable = true }, "cordoned", Warning, "cordoned",
			"kubectl uncordon one",
		},
		{
			"one node left", func(f *Facts) { first(f).Spec.Unschedulable = true }, "capacity", Warning,
			"only one node", "add a node",
		},
		{"no node", func(f *Facts) { f.Nodes.Value = nil }, "capacity", Failed, "no node takes VMs", "get pods"},
		{
			"no handler", func(f *Facts) { f.Pods.Value = slices.Delete(f.Pods.Value, 2, 3) }, names.VirtHandler,
			Failed, "no virt-handler runs", "describe daemonset",
		},
		{
			"handler silent",
			func(f *Facts) { first(f).Annotations[v1.VirtHandlerHeartbeat] = `"2026-03-04T04:00:00Z"` },
			names.VirtHandler, Failed, "66m ago", "logs",
		},
		{
			"no KVM",
			func(f *Facts) { first(f).Annotations[names.AnnotationHost] = `{"kvm":false,"noKVM":"not loaded"}` }, "kvm",
			Warning, "emulated and slow: not loaded", "kvm_intel",
		},
		{
			"no KVM in a guest",
			func(f *Facts) { first(f).Annotations[names.AnnotationHost] = `{"kvm":false,"virtualized":true}` }, "kvm",
			Warning, "emulated", "nested",
		},
		{"KVM not used", func(f *Facts) {
			f.KubeVirt.Value.Spec.Configuration.DeveloperConfiguration = &v1.DeveloperConfiguration{UseEmulation: true}
		}, "kvm", Warning, "useEmulation is set", "useEmulation"},
		{
			"KVM not offered", func(f *Facts) { delete(first(f).Status.Allocatable, names.ResourceKVM) }, "kvm",
			Warning, "does not offer", "delete pod",
		},
		{
			"node's clock",
			func(f *Facts) { first(f).ManagedFields[0].Time = &metav1.Time{Time: now.Add(time.Minute)} }, "clock",
			Warning, "behind the API server's", "NTP",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := healthy()
			c.make(&f)
			r := Examine(f)
			at := slices.IndexFunc(r.Checks, func(got Check) bool {
				return got.Name == c.check && got.Status == c.status
			})
			if at < 0 {
				t.Fatalf("no check %s is %s: %+v", c.check, c.status, r.Checks)
			}
			got := r.Checks[at]
			if !strings.Contains(got.Message, c.message) ||
				c.fix != "" && (len(got.Fixes) == 0 || !strings.Contains(got.Fixes[0], c.fix)) {
				t.Errorf("%+v", got)
			}
			if (r.Status == Failed) != (c.status == Failed) {
				t.Errorf("the report is %s", r.Status)
			}
		})
	}
}
