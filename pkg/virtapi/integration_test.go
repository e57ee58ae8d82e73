//go:build integration

package virtapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/manifests"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/certs"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/tests/env"
)

// TestAgainstAPIServer runs virt-api behind a real API server: aggregation, delegated authentication and
// authorization, webhooks and streams.
func mustJSON(t *testing.T, text string) string {
	t.Helper()
	out, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestAgainstAPIServer(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	e, err := env.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Stop()
	core := kubernetes.NewForConfigOrDie(e.Config)
	create := func(object client.Object) {
		t.Helper()
		if err := e.Client.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}

	handlerSecret, apiSecret := issue(t)
	bundle := apiSecret.Data[certs.CABundleKey]
	create(apiSecret)

	// A virt-handler that echoes.
	handler := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		conn, err := stream.Accept(w, r, stream.Options{})
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, r.Header.Get("X-Remote-User")+" ")
		io.Copy(conn, conn)
		conn.CloseWrite()
	}))
	handler.TLS = source(t, handlerSecret).ServerConfig(names.CommonNameAPI)
	handler.Listener.Close()
	if handler.Listener, err = net.Listen("tcp", "127.0.0.1:"+"8186"); err != nil {
		t.Fatal(err)
	}
	handler.StartTLS()
	defer handler.Close()
	pod := handlerPod("virt-handler-x", "", "", "")
	pod.Spec = corev1.PodSpec{NodeName: testNode, Containers: []corev1.Container{{Name: "x", Image: "x"}}}
	create(pod)
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: "127.0.0.1", PodIPs: []corev1.PodIP{{IP: "127.0.0.1"}},
	}
	if err := e.Client.Status().Update(ctx, pod); err != nil {
		t.Fatal(err)
	}

	// virt-api itself.
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	account := rest.CopyConfig(e.Config) // with the rights of the manifests, no others
	account.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + names.Namespace + ":" + names.VirtAPI,
		Groups: []string{
			"system:serviceaccounts", "system:serviceaccounts:" + names.Namespace, "system:authenticated",
		},
	}
	installRights(t, ctx, e.Client)
	writeKubeconfig(t, kubeconfig, account)
	address := ownAddress(t)
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	health, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serverCtx, stopServer := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() {
		o := Options{Kubeconfig: kubeconfig, Namespace: names.Namespace, audit: options.NewAuditOptions()}
		served <- o.serve(serverCtx, rest.CopyConfig(account), listener, health)
	}()
	eventually(t, ctx, "virt-api is ready", func() error {
		response, err := http.Get("http://" + health.Addr().String() + "/readyz")
		if err != nil {
			return err
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	})

	// The way to it: a Service that leads to this process, the APIServices and the webhooks.
	port := int32(listener.Addr().(*net.TCPAddr).Port)
	create(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: names.Namespace, Name: names.VirtAPI},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: port}}},
	})
	create(&discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: names.Namespace, Name: names.VirtAPI,
			Labels: map[string]string{discoveryv1.LabelServiceName: names.VirtAPI},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}}},
		Ports:       []discoveryv1.EndpointPort{{Name: new("https"), Port: &port}},
	})
	aggregation := aggregator.NewForConfigOrDie(e.Config)
	for _, gv := range groupVersions {
		_, err := aggregation.ApiregistrationV1().APIServices().Create(ctx, &apiregistrationv1.APIService{
			ObjectMeta: metav1.ObjectMeta{Name: gv.Version + "." + gv.Group},
			Spec: apiregistrationv1.APIServiceSpec{
				Group: gv.Group, Version: gv.Version, GroupPriorityMinimum: 1000, VersionPriority: 20, CABundle: bundle,
				Service: &apiregistrationv1.ServiceReference{
					Namespace: names.Namespace, Name: names.VirtAPI, Port: &port,
				},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	installWebhooks(t, ctx, e.Client, bundle, port)

	t.Run("discovery and OpenAPI", func(t *testing.T) {
		eventually(t, ctx, "the group is discovered", func() error {
			list, err := discovery.NewDiscoveryClientForConfigOrDie(e.Config).ServerResourcesForGroupVersion(
				"subresources.kubevirt.io/v1")
			if err != nil {
				return err
			}
			for _, r := range list.APIResources {
				if r.Name == "virtualmachineinstances/console" && r.Namespaced {
					return nil
				}
			}
			return errors.New("no virtualmachineinstances/console")
		})
		eventually(t, ctx, "the group is in aggregated discovery", func() error {
			groups, _, err := core.Discovery().ServerGroupsAndResources()
			if err != nil {
				return err
			}
			for _, g := range groups {
				if g.Name == "subresources.kubevirt.io" && len(g.Versions) == 2 && g.PreferredVersion.Version == "v1" {
					return nil
				}
			}
			return errors.New("not there")
		})
		eventually(t, ctx, "the group is in OpenAPI", func() error {
			data, err := core.RESTClient().Get().AbsPath("/openapi/v3/apis/subresources.kubevirt.io/v1").DoRaw(ctx)
			if err != nil {
				return err
			}
			if !strings.Contains(string(data), "virtualmachines/{name}/start") {
				return fmt.Errorf("no start in %.500s", data)
			}
			return nil
		})
		data, err := core.RESTClient().Get().AbsPath("/apis/subresources.kubevirt.io/v1/version").DoRaw(ctx)
		if err != nil || !strings.Contains(string(data), "gitVersion") {
			t.Errorf("version: %s, %v", data, err)
		}
	})

	vm := &v1.VirtualMachine{}
	if err := yaml.Unmarshal([]byte(goodMachine), vm); err != nil {
		t.Fatal(err)
	}
	t.Run("admission", func(t *testing.T) {
		bad := vm.DeepCopy()
		bad.Spec.Template.Spec.Domain.LaunchSecurity = &v1.LaunchSecurity{TDX: &v1.TDX{}}
		err := e.Client.Create(ctx, bad)
		if !apierrors.IsInvalid(err) ||
			!strings.Contains(err.Error(), "spec.template.spec.domain.launchSecurity.tdx: not supported by virtkit") {
			t.Errorf("got %v", err)
		}
		// The API server drops what a definition does not have, but for virt-api to refuse it, also for a client that
		// asks for no validation.
		machines := core.RESTClient().Post().AbsPath("/apis/kubevirt.io/v1/namespaces/default/virtualmachines").
			SetHeader("Content-Type", "application/json").Param("fieldValidation", "Ignore")
		unknown := strings.Replace(mustJSON(t, goodMachine), `"domain":{`, `"domain":{"colour":"red",`, 1)
		err = machines.Body([]byte(unknown)).Do(ctx).Error()
		if !apierrors.IsInvalid(err) ||
			!strings.Contains(err.Error(), "spec.template.spec.domain.colour: is no field") {
			t.Errorf("an unknown field: %v", err)
		}
		// A quantity may be a fraction, as in pods, although the schema has integers and strings.
		fraction := strings.Replace(mustJSON(t, goodMachine), `"domain":{`,
			`"domain":{"resources":{"requests":{"cpu":0.5}},`, 1)
		answer, err := core.RESTClient().Post().AbsPath("/apis/kubevirt.io/v1/namespaces/default/virtualmachines").
			SetHeader("Content-Type", "application/json").Param("dryRun", "All").Body([]byte(fraction)).Do(ctx).Raw()
		if err != nil || !strings.Contains(string(answer), `"cpu":"500m"`) {
			t.Errorf("a fraction: %v %s", err, answer)
		}
		// KubeVirt's v1alpha3 is v1 by another name, with all that admission does.
		old := strings.Replace(mustJSON(t, goodMachine), "kubevirt.io/v1", "kubevirt.io/v1alpha3", 1)
		answer, err = core.RESTClient().Post().AbsPath("/apis/kubevirt.io/v1alpha3/namespaces/default/virtualmachines").
			SetHeader("Content-Type", "application/json").Param("dryRun", "All").Body([]byte(old)).Do(ctx).Raw()
		if err != nil || !strings.Contains(string(answer), `"kubevirt.io/v1alpha3"`) ||
			!strings.Contains(string(answer), `"machine":{"type":"q35"}`) {
			t.Errorf("v1alpha3: %v %s", err, answer)
		}
		dry := vm.DeepCopy()
		if err := e.Client.Create(ctx, dry, client.DryRunAll); err != nil ||
			dry.Spec.Template.Spec.Domain.Firmware.UUID == "" {
			t.Errorf("dry run: %v", err)
		}
		create(vm)
		if vm.Spec.Template.Spec.Domain.Firmware.UUID == "" || vm.Spec.Template.Spec.Domain.Machine.Type != "q35" {
			t.Errorf("not defaulted: %+v", vm.Spec.Template.Spec.Domain)
		}
	})
	t.Run("presets", func(t *testing.T) {
		preset := &v1.VirtualMachineInstancePreset{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "windows"}}
		err := e.Client.Create(ctx, preset)
		if !apierrors.IsInvalid(err) ||
			!strings.Contains(err.Error(), "use a VirtualMachinePreference or a VirtualMachineInstancetype") {
			t.Errorf("made: %v", err)
		}
		list := &v1.VirtualMachineInstancePresetList{}
		if err := e.Client.List(ctx, list, client.InNamespace("default")); err != nil || len(list.Items) != 0 {
			t.Errorf("listed: %v %v", list.Items, err)
		}
	})
	yes := true
	vmi := &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "vm",
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachine", Name: "vm", UID: vm.UID, Controller: &yes},
			},
		},
		Spec: vm.Spec.Template.Spec,
	}
	create(vmi)
	if len(vmi.Finalizers) != 1 || len(vmi.Spec.Networks) != 1 {
		t.Errorf("instance not defaulted: %+v", vmi)
	}
	changed := vmi.DeepCopy()
	changed.Spec.Hostname = "x"
	if err := e.Client.Update(ctx, changed); !apierrors.IsInvalid(err) ||
		!strings.Contains(err.Error(), `change the VirtualMachine "vm"`) {
		t.Errorf("spec changed: %v", err)
	}
	vmi.Status.Phase, vmi.Status.NodeName = v1.Running, testNode
	if err := e.Client.Status().Update(ctx, vmi); err != nil {
		t.Fatal(err)
	}

	base := "/apis/subresources.kubevirt.io/v1/namespaces/default/"
	put := func(config *rest.Config, path, body string) error {
		return kubernetes.NewForConfigOrDie(config).CoreV1().RESTClient().Put().AbsPath(base+path).
			SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(ctx).Error()
	}
	t.Run("lifecycle", func(t *testing.T) {
		if err := put(e.Config, "virtualmachines/vm/start", "{}"); !apierrors.IsConflict(err) ||
			!strings.Contains(err.Error(), "VM is already running") {
			t.Errorf("start: %v", err)
		}
		if err := put(e.Config, "virtualmachines/vm/restart", "{}"); err != nil {
			t.Errorf("restart: %v", err)
		}
		if err := e.Client.Get(ctx, client.ObjectKeyFromObject(vm), vm); err != nil ||
			len(vm.Status.StateChangeRequests) != 2 {
			t.Errorf("requests %+v, %v", vm.Status.StateChangeRequests, err)
		}
		if err := put(e.Config, "virtualmachines/vm/stop", `{"gracePeriod":3}`); err != nil {
			t.Errorf("stop: %v", err)
		}
		if err := e.Client.Get(ctx, client.ObjectKeyFromObject(vm), vm); err != nil ||
			*vm.Spec.RunStrategy != v1.RunStrategyHalted {
			t.Errorf("strategy %v, %v", vm.Spec.RunStrategy, err)
		}
		if err := put(e.Config, "virtualmachineinstances/vm/pause", "{}"); err != nil {
			t.Errorf("pause: %v", err)
		}
	})
	t.Run("console", func(t *testing.T) {
		conn, err := stream.Dial(ctx, e.Config, base+"virtualmachineinstances/vm/console", nil, stream.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		payload := strings.Repeat("x", 4<<20)
		go func() { io.WriteString(conn, payload); conn.CloseWrite() }()
		got, err := io.ReadAll(conn)
		user, echoed, _ := strings.Cut(string(got), " ")
		if err != nil || echoed != payload || user == "" {
			t.Errorf("user %q, %d bytes, %v", user, len(echoed), err)
		}
	})
	t.Run("annotations of the components", func(t *testing.T) {
		tryReserved(ctx, t, e.Config, e.Client, vm, vmi)
	})
	t.Run("rights", func(t *testing.T) {
		jane := rest.CopyConfig(e.Config)
		jane.Impersonate = rest.ImpersonationConfig{UserName: "jane", Groups: []string{"system:authenticated"}}
		if err := put(jane, "virtualmachines/vm/start", "{}"); !apierrors.IsForbidden(err) {
			t.Errorf("start without rights: %v", err)
		}
		if _, err := stream.Dial(ctx, jane, base+"virtualmachineinstances/vm/console",
			nil, stream.Options{}); !apierrors.IsForbidden(err) {
			t.Errorf("console without rights: %v", err)
		}
		create(&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "console"},
			Rules: []rbacv1.PolicyRule{
				{
					APIGroups: []string{"subresources.kubevirt.io"},
					Resources: []string{"virtualmachineinstances/console"}, Verbs: []string{"get"},
				},
			},
		})
		create(&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "console"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "console"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "june"}},
		})
		june := rest.CopyConfig(jane)
		june.Impersonate.UserName = "june"
		eventually(t, ctx, "june reaches the console", func() error {
			conn, err := stream.Dial(ctx, june, base+"virtualmachineinstances/vm/console", nil, stream.Options{})
			if err != nil {
				return err
			}
			defer conn.Close()
			conn.CloseWrite()
			got, err := io.ReadAll(conn)
			if err == nil && string(got) != "june " {
				t.Errorf("got %q", got)
			}
			return err
		})
	})
	stopServer()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// ownAddress is one of this machine's that an EndpointSlice may have: not a loopback address.
func ownAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	t.Fatal("this machine has no IPv4 address but loopback ones, which endpoints may not have")
	return ""
}

func eventually(t *testing.T, ctx context.Context, what string, try func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-ticker.C:
		}
	}
}

func writeKubeconfig(t *testing.T, file string, c *rest.Config) {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["x"] = &clientcmdapi.Cluster{
		Server: c.Host, CertificateAuthority: c.CAFile, CertificateAuthorityData: c.CAData,
		InsecureSkipTLSVerify: c.Insecure,
	}
	config.AuthInfos["x"] = &clientcmdapi.AuthInfo{
		ClientCertificate: c.CertFile, ClientCertificateData: c.CertData, ClientKey: c.KeyFile,
		ClientKeyData: c.KeyData, Token: c.BearerToken,
		Impersonate: c.Impersonate.UserName, ImpersonateGroups: c.Impersonate.Groups,
	}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "x", AuthInfo: "x"}
	config.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
}

// installRights creates the roles of virt-api from the manifests.
func installRights(t *testing.T, ctx context.Context, c client.Client) {
	t.Helper()
	data, err := manifests.FS.ReadFile("base/rbac-virt-api.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatal(err)
		}
		if err := c.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
}

// installWebhooks creates the webhooks of the manifests, pointed at this process.
func installWebhooks(t *testing.T, ctx context.Context, c client.Client, bundle []byte, port int32) {
	t.Helper()
	data, err := manifests.FS.ReadFile("base/webhooks.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		if strings.Contains(document, "kind: MutatingWebhookConfiguration") {
			hooks := &admissionregistrationv1.MutatingWebhookConfiguration{}
			if err := yaml.UnmarshalStrict([]byte(document), hooks); err != nil {
				t.Fatal(err)
			}
			for i := range hooks.Webhooks {
				hooks.Webhooks[i].ClientConfig.CABundle, hooks.Webhooks[i].ClientConfig.Service.Port = bundle, &port
			}
			err = c.Create(ctx, hooks)
		} else {
			hooks := &admissionregistrationv1.ValidatingWebhookConfiguration{}
			if err := yaml.UnmarshalStrict([]byte(document), hooks); err != nil {
				t.Fatal(err)
			}
			for i := range hooks.Webhooks {
				hooks.Webhooks[i].ClientConfig.CABundle, hooks.Webhooks[i].ClientConfig.Service.Port = bundle, &port
			}
			err = c.Create(ctx, hooks)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// The API server notices them after a moment; until then it admits anything.
	eventually(t, ctx, "the webhooks are called", func() error {
		probe := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probe"}}
		probe.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
		if err := c.Create(ctx, probe, client.DryRunAll); !apierrors.IsInvalid(err) ||
			!strings.Contains(err.Error(), "spec.runStrategy: is not set") {
			return errors.Join(errors.New("not called"), err)
		}
		return nil
	})
}
