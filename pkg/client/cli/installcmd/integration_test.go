//go:build integration

package installcmd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/root"
	"github.com/virtkit/virtkit/tests/env"
)

// virtctl runs a command line against a control plane.
type virtctl struct {
	t          *testing.T
	env        *env.Environment
	kubeconfig string
}

func newVirtctl(t *testing.T) *virtctl {
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
	config := clientcmdapi.NewConfig()
	config.Clusters["it"] = &clientcmdapi.Cluster{
		Server: e.Config.Host, CertificateAuthorityData: e.Config.CAData, CertificateAuthority: e.Config.CAFile,
	}
	config.AuthInfos["it"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: e.Config.CertData, ClientCertificate: e.Config.CertFile,
		ClientKeyData: e.Config.KeyData, ClientKey: e.Config.KeyFile, Token: e.Config.BearerToken,
	}
	config.Contexts["it"] = &clientcmdapi.Context{Cluster: "it", AuthInfo: "it"}
	config.CurrentContext = "it"
	v := &virtctl{t: t, env: e, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	if err := clientcmd.WriteToFile(*config, v.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return v
}

// run checks the exit code and gives what was written.
func (v *virtctl) run(code int, args ...string) (stdout, stderr string) {
	v.t.Helper()
	var out, errOut bytes.Buffer
	f := cli.NewFactory("virtctl", &cli.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}, os.Getenv)
	if got := root.Run(v.t.Context(), f, append(args, "--kubeconfig", v.kubeconfig)); got != code {
		v.t.Fatalf("virtctl %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, code, out.String(),
			errOut.String())
	}
	return out.String(), errOut.String()
}

// says checks that text is matched by the whole pattern.
func (v *virtctl) says(text, pattern string) {
	v.t.Helper()
	if !regexp.MustCompile(`^(?s:` + pattern + `)\n$`).MatchString(text) {
		v.t.Errorf("%q is not %q", text, pattern)
	}
}

// unwatched deletes virtkit's admission, whose server does not run here.
func (v *virtctl) unwatched() {
	v.t.Helper()
	for _, kind := range []client.Object{
		&admissionregistrationv1.ValidatingWebhookConfiguration{},
		&admissionregistrationv1.MutatingWebhookConfiguration{},
	} {
		if err := v.env.Client.DeleteAllOf(v.t.Context(), kind); err != nil {
			v.t.Fatal(err)
		}
	}
}

func TestInstallAsTyped(t *testing.T) {
	v := newVirtctl(t)

	// Nothing is there.
	out, _ := v.run(cli.ExitOK, "uninstall", "--yes")
	v.says(out, "virtkit is not installed; nothing to do")
	out, _ = v.run(cli.ExitOK, "uninstall", "--yes", "-o", "json")
	if got := items(t, out); len(got) > 0 {
		t.Errorf("deleted %v where nothing is", got)
	}

	// What cannot be.
	_, stderr := v.run(cli.ExitUsage, "install", "--dry-run=perhaps")
	v.says(stderr, `error: .*--dry-run.*`)
	_, stderr = v.run(cli.ExitUsage, "install", "--image-pull-policy", "Sometimes")
	v.says(stderr, `error: .*--image-pull-policy.*`)
	_, stderr = v.run(cli.ExitUsage, "uninstall", "virtkit")
	v.says(stderr, `error: virtctl uninstall takes no arguments.*`)
	_, stderr = v.run(cli.ExitNotAllowed, "install", "--as", "nobody")
	v.says(stderr, `error: .*nobody.*`)
	_, stderr = v.run(cli.ExitFailure, "install", "--server", "https://127.0.0.1:1", "--timeout", "5s")
	v.says(stderr, `error: .*127.0.0.1:1.*`)

	// The server is asked and keeps nothing.
	out, _ = v.run(cli.ExitOK, "install", "--dry-run=server")
	v.says(out, `virtkit dev would be applied in namespace kubevirt: \d+ created.*`)
	out, _ = v.run(cli.ExitOK, "uninstall", "--yes")
	v.says(out, "virtkit is not installed; nothing to do")
	out, _ = v.run(cli.ExitOK, "install", "--dry-run=client", "-o", "json")
	all := items(t, out)

	// Without a node nothing gets ready, which is said; all is applied.
	v.run(cli.ExitOK, "install", "--wait=false")
	v.unwatched()
	_, stderr = v.run(cli.ExitTimeout, "install", "--timeout", "30s") // of which applying takes some on a busy machine
	v.says(stderr, "error: .*virt-api.* ready.*Everything is applied; `virtctl install` again goes on waiting")

	// Again, over itself: nothing changes.
	v.unwatched()
	v.run(cli.ExitOK, "install", "--wait=false")
	v.unwatched()
	out, stderr = v.run(cli.ExitOK, "install", "--wait=false", "-o", "json")
	if got := items(t, out); !slices.Equal(got, all) || stderr != "" {
		t.Errorf("installed %v, want %v; %s", got, all, stderr)
	}
	v.unwatched()
	out, _ = v.run(cli.ExitOK, "install", "--wait=false", "--image-tag", "v2")
	v.says(out, `virtkit v2 is applied in namespace kubevirt: \d+ created, 4 configured, \d+ unchanged`)
	v.unwatched()
	out, _ = v.run(cli.ExitOK, "install", "--wait=false", "--image-tag", "v2", "-o", "name")
	if got := strings.Count(out, "\n"); got != len(all) {
		t.Errorf("%d names of %d objects", got, len(all))
	}

	// A machine is in the way of its end, as is that nobody has agreed to it.
	v.unwatched()
	halted := v1.RunStrategyHalted
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "keep"}}
	vm.Spec.RunStrategy, vm.Spec.Template = &halted, &v1.VirtualMachineInstanceTemplateSpec{}
	eventually(t, func(ctx context.Context) error { return v.env.Client.Create(ctx, vm) })
	_, stderr = v.run(cli.ExitUsage, "uninstall")
	v.says(stderr, "error: uninstalling removes virtkit from the whole cluster; add --yes to say that you mean it\n.*")
	_, stderr = v.run(cli.ExitFailure, "uninstall", "--yes")
	v.says(stderr, "error: .*default/keep.*; delete them first, or add --delete-vms")
	_, stderr = v.run(cli.ExitNotAllowed, "uninstall", "--yes", "--as", "nobody")
	v.says(stderr, `error: .*nobody.*`)
	out, _ = v.run(cli.ExitOK, "uninstall", "--dry-run=server", "--delete-vms")
	v.says(out, `virtkit would be uninstalled: \d+ objects deleted.*`)
	out, _ = v.run(cli.ExitOK, "uninstall", "--dry-run=client", "--delete-vms", "-o", "name")
	if !strings.Contains(out, "namespace/kubevirt\n") {
		t.Errorf("would delete\n%s", out)
	}

	// Without the machine it goes.
	eventually(t, func(ctx context.Context) error { return client.IgnoreNotFound(v.env.Client.Delete(ctx, vm)) })
	out, _ = v.run(cli.ExitOK, "uninstall", "--yes", "--wait=false")
	v.says(out, `virtkit is being uninstalled: \d+ objects deleted`)
}

// items are the objects of a list, as Kind/name.
func items(t *testing.T, text string) []string {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	if err := json.Unmarshal([]byte(text), list); err != nil {
		t.Fatalf("%v in %.300q", err, text)
	}
	if list.GetKind() != "List" || list.GetAPIVersion() != "v1" {
		t.Errorf("printed a %s of %s", list.GetKind(), list.GetAPIVersion())
	}
	var out []string
	for _, o := range list.Items {
		out = append(out, o.GetKind()+"/"+o.GetName())
	}
	slices.Sort(out)
	return out
}

// eventually repeats a request while admission that was deleted a moment ago is still asked.
func eventually(t *testing.T, request func(context.Context) error) {
	t.Helper()
	var last error
	err := env.Eventually(t.Context(), func(ctx context.Context) (bool, error) {
		last = request(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%v: %v", err, last)
	}
}
