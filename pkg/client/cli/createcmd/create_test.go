package createcmd

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// cluster is an API server that answers what is created with what it was sent, or refuses it, and the kubeconfig for
// it, whose context has the namespace "shop".
type cluster struct {
	t          *testing.T
	kubeconfig string
	refusal    *apierrors.StatusError
	// objects are what may be read, by path; what is not among them is not there, if there are any.
	objects map[string]string
	// refuses is the resource whose creation refusal is for; all when it is empty.
	refuses string
	// uploaded is called at the request for an upload; nil for nothing.
	uploaded func()

	mu     sync.Mutex
	asked  []string // METHOD path?query
	object string   // the last that was sent
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	writeFile(t, c.kubeconfig, `apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, namespace: shop}}]
clusters: [{name: test, cluster: {server: "`+server.URL+`"}}]
`)
	return c
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		c.t.Error(err)
	}
	c.mu.Lock()
	c.asked, c.object = append(c.asked, r.Method+" "+r.URL.RequestURI()), string(body)
	c.mu.Unlock()
	if c.uploaded != nil && r.Method == http.MethodPut && filepath.Base(r.URL.Path) == "upload" {
		c.uploaded()
	}
	w.Header().Set("Content-Type", "application/json")
	refusal := c.refusal
	if object, found := c.objects[r.URL.Path]; r.Method == http.MethodGet && c.objects != nil {
		if found {
			_, _ = io.WriteString(w, object) // a client that has gone
			return
		}
		refusal = apierrors.NewNotFound(schema.GroupResource{}, filepath.Base(r.URL.Path))
	} else if c.refuses != "" && (r.Method != http.MethodPost || filepath.Base(r.URL.Path) != c.refuses) {
		refusal = nil
	}
	if refusal == nil {
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(body) // a client that has gone
		return
	}
	status := refusal.Status()
	status.Kind, status.APIVersion = "Status", "v1"
	w.WriteHeader(int(status.Code))
	if err := json.NewEncoder(w).Encode(status); err != nil {
		c.t.Error(err)
	}
}

// requests are what was asked for since the last call.
func (c *cluster) requests() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := strings.Join(c.asked, "\n")
	c.asked = nil
	return out
}

// sent is a field of the object that was sent last, by the words of its path.
func (c *cluster) sent(path ...string) any {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var object any
	if err := json.Unmarshal([]byte(c.object), &object); err != nil {
		c.t.Fatalf("%s: %v", c.object, err)
	}
	for _, word := range path {
		fields, _ := object.(map[string]any)
		object = fields[word]
	}
	return object
}

// create runs `virtctl create` with what stdin has. A random name is "rrrrr".
func (c *cluster) create(stdin string, args ...string) (out, errOut string, err error) {
	c.t.Helper()
	var stdout, stderr bytes.Buffer
	streams := &cli.IOStreams{In: strings.NewReader(stdin), Out: &stdout, ErrOut: &stderr}
	f := cli.NewFactory("virtctl", streams, func(string) string { return "" })
	f.RandomName = func(n int) string { return strings.Repeat("r", n) }
	cmd := NewCmdCreate(f)
	f.Flags.AddFlags(cmd.PersistentFlags())
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append(args, "--kubeconfig", c.kubeconfig))
	err = cmd.ExecuteContext(c.t.Context())
	f.IO.Flush()
	return stdout.String(), stderr.String(), err
}

// refused wants a command line to be a mistake of which want is said, before anything is printed or asked.
func (c *cluster) refused(line, want string) {
	c.t.Helper()
	out, _, err := c.create("", strings.Fields(line)...)
	if err == nil || cli.ExitCode(err) != cli.ExitUsage || err.Error() != want {
		c.t.Errorf("create %s\n got %v (code %d)\nwant %s", line, err, cli.ExitCode(err), want)
	}
	if asked := c.requests(); out != "" || asked != "" {
		c.t.Errorf("create %s: printed %q, asked %q", line, out, asked)
	}
}

// golden compares what a command printed with the file of a name.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		writeFile(t, path, got)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: -want +got\n%s", path, diff)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestApply has each kind created where it belongs: in the namespace of the flag, else of the context, or in the
// cluster.
func TestApply(t *testing.T) {
	const clones, types = "/apis/clone.kubevirt.io/v1beta1", "/apis/instancetype.kubevirt.io/v1beta1"
	const vms = "/apis/kubevirt.io/v1/namespaces/"
	for line, want := range map[string]struct{ asked, out string }{
		"vm --name demo --pvc disk --apply": {vms + "shop/virtualmachines?", "virtualmachine.kubevirt.io/demo created"},
		"vm --name demo --pvc disk --apply -n shop": {
			vms + "shop/virtualmachines?", "virtualmachine.kubevirt.io/demo created",
		},
		"vm --pvc disk --apply": {
			vms + "shop/virtualmachines?", "virtualmachine.kubevirt.io/vm-rrrrr created",
		},
		"vm --name demo --pvc disk --apply -o name": {vms + "shop/virtualmachines?", "virtualmachine.kubevirt.io/demo"},
		// Asking the server is what an apply does.
		"vm --name demo --pvc disk --dry-run": {
			vms + "shop/virtualmachines?dryRun=All&", "virtualmachine.kubevirt.io/demo created (server dry run)",
		},
		"instancetype --name small --cpu 1 --memory 1Gi --apply": {
			types + "/virtualmachineclusterinstancetypes?",
			"virtualmachineclusterinstancetype.instancetype.kubevirt.io/small created",
		},
		"instancetype --name small --cpu 1 --memory 1Gi --apply --namespaced": {
			types + "/namespaces/shop/virtualmachineinstancetypes?",
			"virtualmachineinstancetype.instancetype.kubevirt.io/small created",
		},
		"instancetype --name small --cpu 1 --memory 1Gi --apply -n shop -o name": {
			types + "/namespaces/shop/virtualmachineinstancetypes?",
			"virtualmachineinstancetype.instancetype.kubevirt.io/small",
		},
		"preference --apply": {
			types + "/virtualmachineclusterpreferences?",
			"virtualmachineclusterpreference.instancetype.kubevirt.io/clusterpreference-rrrrr created",
		},
		"preference --apply --namespaced": {
			types + "/namespaces/shop/virtualmachinepreferences?",
			"virtualmachinepreference.instancetype.kubevirt.io/preference-rrrrr created",
		},
		"preference --name linux --dry-run=server": {
			types + "/virtualmachineclusterpreferences?",
			"virtualmachineclusterpreference.instancetype.kubevirt.io/linux created (server dry run)",
		},
		"clone --source-name demo --apply": {
			clones + "/namespaces/shop/virtualmachineclones?",
			"virtualmachineclone.clone.kubevirt.io/clone-rrrrr created",
		},
		"clone --source-name demo --apply -n shop": {
			clones + "/namespaces/shop/virtualmachineclones?",
			"virtualmachineclone.clone.kubevirt.io/clone-rrrrr created",
		},
		"clone --source-name demo --apply -o name": {
			clones + "/namespaces/shop/virtualmachineclones?", "virtualmachineclone.clone.kubevirt.io/clone-rrrrr",
		},
		"clone --source-name demo --dry-run --name c": {
			clones + "/namespaces/shop/virtualmachineclones?",
			"virtualmachineclone.clone.kubevirt.io/c created (server dry run)",
		},
	} {
		c := newCluster(t)
		out, errOut, err := c.create("", strings.Fields(line)...)
		if err != nil || out != want.out+"\n" || errOut != "" {
			t.Errorf("create %s: %q, %q, %v; want %s", line, out, errOut, err, want.out)
		}
		asked := c.requests()
		if !strings.HasPrefix(asked, "POST "+want.asked) || strings.Contains(asked, "\n") {
			t.Errorf("create %s: asked %q, want one POST %s", line, asked, want.asked)
		}
		if dry := strings.Contains(line, "--dry-run"); dry != strings.Contains(asked, "dryRun=All") {
			t.Errorf("create %s: asked %q", line, asked)
		}
	}
}

// TestNotApplied has nothing asked of a cluster without --apply, and with a client's dry run.
func TestNotApplied(t *testing.T) {
	c := newCluster(t)
	for _, line := range []string{
		"vm --name x", "instancetype --name x --cpu 1 --memory 1Gi", "preference --name x",
		"clone --name x --source-name demo",
	} {
		plain, _, err := c.create("", strings.Fields(line)...)
		if err != nil || !strings.HasPrefix(plain, "apiVersion: ") || !strings.Contains(plain, "\n  name: x\n") {
			t.Errorf("create %s: %v\n%s", line, err, plain)
		}
		dry, _, err := c.create("", strings.Fields(line+" --apply --dry-run=client")...)
		if err != nil || dry != plain {
			t.Errorf("create %s: %v\n%s", line, err, cmp.Diff(plain, dry))
		}
	}
	if asked := c.requests(); asked != "" {
		t.Errorf("asked %s", asked)
	}
}

// TestRefusedByServer says what was to be created where, and keeps the server's reason and its exit code.
func TestRefusedByServer(t *testing.T) {
	for line, want := range map[string]string{
		"vm --name demo --pvc disk --apply":                                `create VM shop/demo: `,
		"instancetype --name small --cpu 1 --memory 1Gi --apply":           `create instancetype small: `,
		"instancetype --name small --cpu 1 --memory 1Gi --apply -n shop":   `create instancetype shop/small: `,
		"preference --name linux --namespaced --apply":                     `create preference shop/linux: `,
		"clone --source-name demo --apply":                                 `clone shop/demo: `,
		"clone --source-name demo -n shop --target-namespace test --apply": `clone shop/demo: `,
	} {
		c := newCluster(t)
		c.refusal = apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "x", nil)
		out, _, err := c.create("", strings.Fields(line)...)
		if err == nil || !strings.HasPrefix(err.Error(), want) || !apierrors.IsForbidden(err) || out != "" {
			t.Errorf("create %s: %q, %v; want %s", line, out, err, want)
		}
	}
}

// TestNoArguments has the name in a flag, not in an argument, and an output format that there is.
func TestNoArguments(t *testing.T) {
	c := newCluster(t)
	for _, kind := range []string{"vm", "instancetype --cpu 1 --memory 1Gi", "preference", "clone --source-name demo"} {
		_, _, err := c.create("", append(strings.Fields(kind), "demo")...)
		if cli.ExitCode(err) != cli.ExitUsage || !strings.Contains(err.Error(), `takes no arguments, got "demo"`) {
			t.Errorf("%s demo: %v", kind, err)
		}
		_, _, err = c.create("", append(strings.Fields(kind), "-o", "xml")...)
		if cli.ExitCode(err) != cli.ExitUsage ||
			!strings.HasPrefix(err.Error(), `unknown output format "xml"; use one of `) {
			t.Errorf("%s -o xml: %v", kind, err)
		}
	}
}
