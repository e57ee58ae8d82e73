package root

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

// withoutRights are the command lines that do not end with code 4 for an account without any role, and why.
var withoutRights = map[string]string{
	"help": "of this machine", "__complete describe ''": "of this machine", "__complete start vm/": "of this machine",
	"port-forward list": "of this machine", "port-forward stop --all": "of this machine",
	"undo --list":                       "of this machine",
	"image show debian":                 "of this machine",
	"import FILE":                       "the file is none, which is seen before the cluster is asked",
	"image pull debian/13 --arch s390x": "it is refused before the cluster is asked",
	"image add golden/1 --size 1Gi --url https://example.com/x --checksums https://example.com/y": "of this machine",
	"doctor": "it goes on, and says of each check that it may not be made", "doctor --quiet": "as doctor",
}

// TestNoRightsIsSaid runs every command as an account without any role: that is what is said, and never that an object
// does not exist.
func TestNoRightsIsSaid(t *testing.T) {
	kubeconfig := withoutRole(t)
	dir := t.TempDir()
	manifest := filepath.Join(dir, "manifest.yaml")
	writeFile(t, manifest,
		"apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: demo, "+
			"namespace: default}\nspec: {runStrategy: Halted, template: {spec: {domain: {devices: {}}}}}\n")
	t.Setenv("XDG_STATE_HOME", dir)
	t.Setenv("XDG_RUNTIME_DIR", dir)
	t.Setenv("HOME", dir)
	for _, lines := range commandLines {
		for _, line := range lines {
			if withoutRights[line] != "" {
				continue
			}
			var stdout, stderr bytes.Buffer
			f := cli.NewFactory("virtctl",
				&cli.IOStreams{In: strings.NewReader("print \"x\"\n"), Out: &stdout, ErrOut: &stderr},
				func(name string) string { return map[string]string{"KUBECONFIG": kubeconfig}[name] })
			words := strings.NewReplacer("FILE", manifest, "DIR", dir, "10ms", "10s").Replace(line)
			code := Run(t.Context(), f, append([]string{"--kubeconfig", kubeconfig}, fields(words)...))
			if code != cli.ExitNotAllowed {
				t.Errorf("virtctl %s: code %d, want %d\n%s%s", line, code, cli.ExitNotAllowed, stdout.String(),
					stderr.String())
			}
			for _, wrong := range []string{"there is no", "not found"} {
				if strings.Contains(stdout.String()+stderr.String(), wrong) {
					t.Errorf("virtctl %s says %q:\n%s%s", line, wrong, stdout.String(), stderr.String())
				}
			}
		}
	}
}

// withoutRole is the kubeconfig of an account that may do nothing.
func withoutRole(t *testing.T) string {
	t.Helper()
	return server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" { // every account may read it
			_, _ = w.Write([]byte(`{"major":"1","minor":"34","gitVersion":"v1.34.0"}`))
			return
		}
		resource := "things"
		if m := listPath.FindStringSubmatch(r.URL.Path); m != nil {
			resource = m[1]
		} else if m := onePath.FindStringSubmatch(r.URL.Path); m != nil {
			resource = m[1]
		}
		err := apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", nil)
		err.ErrStatus.Message = `User "nobody" cannot get resource "` + resource +
			`" in API group "" in the namespace "default"`
		err.ErrStatus.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		data, encodeErr := json.Marshal(err.Status())
		if encodeErr != nil {
			t.Error(encodeErr)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write(data) // a client that has gone
	})
}

// TestDoctorSaysWhatItSkips: an account without any role hears of each check that was not made which right it needs.
func TestDoctorSaysWhatItSkips(t *testing.T) {
	kubeconfig := withoutRole(t)
	run := func(args ...string) (string, string) {
		var stdout, stderr bytes.Buffer
		f := cli.NewFactory("virtctl", &cli.IOStreams{In: strings.NewReader(""), Out: &stdout, ErrOut: &stderr},
			func(string) string { return "" })
		// It may warn of the client.
		_ = Run(t.Context(), f, append([]string{"--kubeconfig", kubeconfig, "doctor"}, args...))
		return stdout.String(), stderr.String()
	}
	out, _ := run()
	for _, what := range []string{
		"storage classes are", "snapshots of volumes are", "the kinds that the cluster serves are",
		"the KubeVirt resource is", "virt-api and virt-controller are", "the version of virt-api is", "admission is",
		"the certificate authority is", "admission policies are",
		"the nodes (kubelet, virt-handler, KVM, memory and clock of each) are",
	} {
		if want := "  skip  " + what + ` not looked at: not allowed: user "nobody" may not get `; !strings.Contains(out,
			want) {
			t.Errorf("nothing says %q:\n%s", want, out)
		}
	}
	skipped := strings.Count(out, "  skip  ")
	if out, errOut := run("--quiet"); strings.Contains(out, "skip") ||
		errOut != fmt.Sprintf("note: %d checks were skipped; `virtctl doctor` says which, and why\n", skipped) {
		t.Errorf("with --quiet:\n%s%s", out, errOut)
	}
}
