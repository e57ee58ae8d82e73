package controlplane

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	auditapi "k8s.io/apiserver/pkg/apis/audit"
	auditpolicy "k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/tools/clientcmd"
	apiserveroptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// serverOptions are kube-apiserver's options by the arguments that virt-local gives it.
func serverOptions(t *testing.T, cfg Config) *apiserveroptions.ServerRunOptions {
	t.Helper()
	address, err := net.ResolveTCPAddr("tcp4", cfg.Address)
	if err != nil {
		t.Fatal(err)
	}
	options := apiserveroptions.NewServerRunOptions()
	sets := options.Flags()
	if err := parse(&sets, apiServerArgs(cfg, address)); err != nil {
		t.Fatalf("kube-apiserver does not know these arguments: %v", err)
	}
	return options
}

func TestAPIServerArgs(t *testing.T) {
	o := serverOptions(t, Config{Address: "10.1.2.3:6443", ServiceNet: "10.96.0.0/16", Controllers: "*"})
	if ip := o.SecureServing.BindAddress.String(); ip != "10.1.2.3" || o.SecureServing.BindPort != 6443 ||
		o.GenericServerRunOptions.AdvertiseAddress.String() != ip {
		t.Errorf("it listens at %s:%d and is advertised as %s", ip, o.SecureServing.BindPort,
			o.GenericServerRunOptions.AdvertiseAddress)
	}
	if o.ServiceClusterIPRanges != "10.96.0.0/16" {
		t.Errorf("Services have %s", o.ServiceClusterIPRanges)
	}
	// What holds tenants and nodes: a token of a node changes that node only, and everybody is asked for rights.
	if !slices.Equal(o.Authorization.Modes, []string{"Node", "RBAC"}) {
		t.Errorf("authorization modes %v", o.Authorization.Modes)
	}
	if !slices.Contains(o.Admission.GenericAdmission.EnablePlugins, "NodeRestriction") {
		t.Errorf("admission plugins %v", o.Admission.GenericAdmission.EnablePlugins)
	}
	if len(o.Admission.GenericAdmission.DisablePlugins) > 0 {
		t.Errorf("without these admission plugins: %v", o.Admission.GenericAdmission.DisablePlugins)
	}
	if o.Admission.GenericAdmission.ConfigFile != admissionFile {
		t.Errorf("webhooks are called as %q says", o.Admission.GenericAdmission.ConfigFile)
	}
	if header := o.Authentication.RequestHeader; !slices.Equal(header.AllowedNames, []string{"front-proxy-client"}) ||
		header.ClientCAFile == o.Authentication.ClientCert.ClientCA || header.ClientCAFile == "" {
		t.Errorf("users of aggregated API servers are believed of %v, signed by %s", header.AllowedNames,
			header.ClientCAFile)
	}
	if o.KubeletConfig.TLSClientConfig.CAFile == "" {
		t.Error("a kubelet need not show a certificate")
	}
	if o.Audit.PolicyFile == "" || o.Audit.LogOptions.Path == "" || o.Audit.LogOptions.MaxSize*
		(o.Audit.LogOptions.MaxBackups+1) > 500 {
		t.Errorf("audit %+v", o.Audit.LogOptions)
	}
	if o.Features.EnableProfiling {
		t.Error("the server may be profiled")
	}
	if o.EndpointReconcilerType != "lease" {
		t.Errorf("its address is published by %q", o.EndpointReconcilerType)
	}
}

// An API server for tests of reconcilers: on loopback, where no Endpoints may be, and without a controller that makes
// service accounts.
func TestAPIServerArgsAlone(t *testing.T) {
	o := serverOptions(t, Config{Address: "127.0.0.1:6443", ServiceNet: "10.96.0.0/16"})
	if o.EndpointReconcilerType != "none" {
		t.Errorf("its address is published by %q", o.EndpointReconcilerType)
	}
	if !slices.Equal(o.Admission.GenericAdmission.DisablePlugins, []string{"ServiceAccount"}) {
		t.Errorf("without these admission plugins: %v", o.Admission.GenericAdmission.DisablePlugins)
	}
}

func TestLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:0": true, "127.9.0.1:6443": true, "[::1]:0": true, "10.0.0.1:0": false, "0.0.0.0:0": false,
		"localhost:0": false, "127.0.0.1": false, "": false,
	} {
		if got := (Config{Address: address}).loopback(); got != want {
			t.Errorf("%q: %t", address, got)
		}
	}
}

// The audit log says what the components of virtkit do, from which tests/rbac knows which rights they use, and nothing
// else: above all no contents.
func TestAuditPolicy(t *testing.T) {
	policy, err := auditpolicy.LoadPolicyFromBytes([]byte(auditPolicy))
	if err != nil {
		t.Fatal(err)
	}
	evaluator := auditpolicy.NewPolicyRuleEvaluator(policy)
	for group, want := range map[string]auditapi.Level{
		"system:serviceaccounts:kubevirt":    auditapi.LevelMetadata,
		"system:serviceaccounts:kube-system": auditapi.LevelNone,
		"system:masters":                     auditapi.LevelNone,
	} {
		rule := evaluator.EvaluatePolicyRule(authorizer.AttributesRecord{
			User: &user.DefaultInfo{Name: "somebody", Groups: []string{"system:authenticated", group}},
			Verb: "get", Resource: "secrets", ResourceRequest: true, Namespace: "default", Name: "password",
		})
		if rule.Level != want || !slices.Contains(rule.OmitStages, auditapi.StageRequestReceived) {
			t.Errorf("%s: %+v", group, rule)
		}
	}
}

// virt-api is shown a certificate when its webhooks are called, and no other server is.
func TestWriteAdmission(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("pki", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := writeAdmission(); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(admissionFile)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfigs, err := filepath.Glob("pki/*.kubeconfig")
	if err != nil || len(kubeconfigs) != 1 {
		t.Fatalf("%v: %v", kubeconfigs, err)
	}
	path, err := filepath.Abs(kubeconfigs[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, plugin := range []string{"MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"} {
		_, of, found := strings.Cut(string(config), "- name: "+plugin+"\n")
		of, _, _ = strings.Cut(of, "- name: ")
		if !found || !strings.Contains(of, "kubeConfigFile: \""+path+"\"\n") {
			t.Errorf("%s reads no kubeconfig:\n%s", plugin, config)
		}
	}
	clients, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	client := clients.AuthInfos["virt-api.kubevirt.svc"]
	if len(clients.AuthInfos) != 1 || client == nil || !filepath.IsAbs(client.ClientKey) ||
		!strings.HasSuffix(client.ClientCertificate, "webhooks.crt") {
		t.Errorf("credentials %+v", clients.AuthInfos)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig has mode %v, %v", info, err)
	}
}
