package root

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

// apart is an API server that can be away: its objects stay as they are, and watches say nothing.
type apart struct {
	t       *testing.T
	address string
	handler http.Handler
	server  *http.Server
	mu      sync.Mutex
	made    map[string]any
	asked   atomic.Int64
	watched atomic.Int64
}

func newApart(t *testing.T) *apart {
	t.Helper()
	a := &apart{t: t, address: "127.0.0.1:0", made: map[string]any{}}
	steady := steadyServer(t)
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	a.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.asked.Add(1)
		query := r.URL.Query()
		follows := query.Get("watch") != "" && query.Get("sendInitialEvents") == "" ||
			strings.HasSuffix(r.URL.Path, "/log")
		if answer := a.own(r); answer != nil {
			w.Header().Set("Content-Type", "application/json")
			if status, refused := answer.(metav1.Status); refused {
				w.WriteHeader(int(status.Code))
			}
			_ = json.NewEncoder(w).Encode(answer) // a client that has gone
			return
		}
		if !follows {
			steady(w, r)
			return
		}
		a.watched.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-over:
		}
	})
	a.start()
	t.Cleanup(func() { a.stop() })
	return a
}

// own is what it answers in a way of its own: what was made has no status and is the only one of its kind, of lists the
// object that was asked for, and a version that is one.
func (a *apart) own(r *http.Request) any {
	a.mu.Lock()
	defer a.mu.Unlock()
	kind := listPath.FindStringSubmatch(r.URL.Path)
	name, _ := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	switch {
	case r.URL.Query().Get("sendInitialEvents") != "":
		return apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil).Status()
	case strings.HasSuffix(r.URL.Path, "/persistentvolumeclaims/new"):
		return map[string]any{"metadata": map[string]any{"name": "new", "namespace": "default"}}
	case r.Method == http.MethodPatch:
		body := map[string]any{}
		if data, err := io.ReadAll(r.Body); err != nil || yaml.Unmarshal(data, &body) != nil || body["kind"] == nil {
			return nil
		}
		return body
	case strings.HasSuffix(r.URL.Path, "/version"):
		return map[string]any{"gitVersion": "v1.36.0", "major": "1", "minor": "36", "platform": "linux"}
	case r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/migrate"):
		a.made["virtualmachineinstancemigrations"] = map[string]any{
			"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
			"metadata": map[string]any{
				"name": "new", "namespace": "default", "creationTimestamp": "2099-01-02T03:04:05Z",
			}, "spec": map[string]any{"vmiName": "demo"},
		}
	case kind == nil || strings.HasSuffix(kind[1], "reviews"):
	case r.Method == http.MethodPost:
		body := map[string]any{}
		if json.NewDecoder(r.Body).Decode(&body) != nil {
			return nil
		}
		a.made[kind[1]] = body
		return body
	case r.URL.Query().Get("watch") != "":
	case a.made[kind[1]] != nil:
		return map[string]any{"metadata": map[string]any{"resourceVersion": "1"}, "items": []any{a.made[kind[1]]}}
	case name != "" && kind[1] == "virtualmachineinstances" && name != "demo":
		return map[string]any{"metadata": map[string]any{"resourceVersion": "1"}, "items": []any{}}
	}
	return nil
}

func (a *apart) start() {
	a.t.Helper()
	var listener net.Listener
	eventually(a.t, "a listener on "+a.address, func() bool {
		var err error
		listener, err = net.Listen("tcp", a.address)
		return err == nil
	})
	a.address = listener.Addr().String()
	a.server = &http.Server{Handler: a.handler, ReadHeaderTimeout: time.Minute}
	go func() { _ = a.server.Serve(listener) }()
}

func (a *apart) stop() { _ = a.server.Close() }

func (a *apart) kubeconfig() string {
	a.t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["x"] = &clientcmdapi.Cluster{Server: "http://" + a.address}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "x"}
	config.CurrentContext = "x"
	path := filepath.Join(a.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("there is not: " + what)
		}
	}
}

// said is what a command has written.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// begin runs a command line until its context ends; the code comes when it has ended.
func begin(ctx context.Context, a *apart, words []string) (out, errOut *said, code chan int) {
	a.t.Helper()
	out, errOut, code = &said{}, &said{}, make(chan int, 1)
	streams := &cli.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: errOut}
	f := cli.NewFactory("virtctl", streams, func(string) string { return "" })
	kubeconfig := a.kubeconfig()
	go func() { code <- Run(ctx, f, append([]string{"--kubeconfig", kubeconfig}, words...)) }()
	return out, errOut, code
}

// follows are command lines that go on until they are interrupted.
var follows = []string{
	"list --watch", "list vmi --watch", "list --watch -o jsonl", "events -f", "events demo --watch -o jsonl",
	"logs demo -f", "logs demo other -f", "top --watch --interval 100ms", "dashboard --plain",
	"wait demo --for condition=Nothing", "wait demo other --for condition=Nothing", "stop demo --yes --wait",
	"addvolume demo --volume-name new --wait", "memory-dump get demo --claim-name disk --wait",
	"snapshot create demo --partial --wait", "scale vmpool/sites --replicas 3 --wait",
}

// TestOutageIsReported has the API server of what follows go away and come back: each says so once, and goes on.
func TestOutageIsReported(t *testing.T) {
	for _, variable := range []string{"XDG_STATE_HOME", "XDG_RUNTIME_DIR", "HOME"} {
		t.Setenv(variable, t.TempDir())
	}
	var group sync.WaitGroup
	defer group.Wait()
	for _, line := range follows {
		a := newApart(t)
		group.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, errOut, code := begin(ctx, a, fields(line))
			settled(t, a, code)
			a.stop()
			printed := func(text string) bool { return eventuallySaid(errOut, text) }
			if !printed("warning: the API server at http://" + a.address + " does not answer") {
				t.Errorf("virtctl %s: no word of the outage: %s", line, errOut)
				return
			}
			before := a.asked.Load()
			a.start()
			if !printed("note: there is an answer again, after ") || a.asked.Load() == before {
				t.Errorf("virtctl %s: no word of its end: %s", line, errOut)
				return
			}
			cancel()
			if got := <-code; got != cli.ExitInterrupted {
				t.Errorf("virtctl %s ended with %d: %s", line, got, errOut)
			}
			for _, word := range []string{"warning: ", "note: there is"} {
				if n := strings.Count(errOut.String(), word); n != 1 {
					t.Errorf("virtctl %s: %d times %q:\n%s", line, n, word, errOut)
				}
			}
		})
	}
}

func eventuallySaid(s *said, text string) bool {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if strings.Contains(s.String(), text) {
			return true
		}
	}
	return false
}

// settled waits until a command has asked what it has to, and follows or asks again and again.
func settled(t *testing.T, a *apart, code chan int) {
	asked, since := int64(0), time.Now()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if now := a.asked.Load(); now != asked {
			asked, since = now, time.Now()
		}
		quiet := time.Since(since) > 500*time.Millisecond
		if a.watched.Load() > 0 && quiet || asked > 20 || len(code) > 0 {
			return
		}
	}
	t.Errorf("it follows nothing, after %d requests", a.asked.Load())
}

// interrupts are a command line of each command that has --wait. Its standard error says what becomes of what was
// requested.
var interrupts = map[string]string{
	"start":                "start other --wait",
	"stop":                 "stop demo --yes --wait",
	"restart":              "restart demo --yes --wait",
	"pause":                "pause demo --wait",
	"unpause":              "", // that of pause
	"migrate":              "migrate demo --wait",
	"migrate-cancel":       "", // nothing migrates here that could be waited for
	"delete":               "delete demo --yes --wait",
	"undo":                 "", // start's code, and that of snapshot restore
	"scale":                "scale vmpool/sites --replicas 3 --wait",
	"addvolume":            "addvolume demo --volume-name new --wait",
	"removevolume":         "removevolume demo --volume-name disk --wait",
	"volume migrate":       "", // its own test interrupts it; the disk here is not copied
	"volume resize":        "", // addvolume's code; the claim here is not bound and cannot grow
	"memory-dump get":      "memory-dump get demo --claim-name disk --wait",
	"memory-dump remove":   "", // that of get
	"memory-dump download": "", // it waits for a dump and then is vmexport download
	"snapshot create":      "snapshot create demo --partial --wait",
	"snapshot restore":     "snapshot restore snap --target copy --wait",
	"clone":                "clone snap --from-snapshot --wait",
	"evacuate":             "evacuate node1 --yes --wait",
	"install":              "install",
	"uninstall":            "uninstall --yes --delete-vms",
	"port-forward":         "", // its --wait is a time
}

var goesOn = regexp.MustCompile(`(?m)^interrupted: .*(goes on|go on|may have been (requested|created)|starts)`)

// TestInterruptedWaits interrupts every command that has --wait while it waits.
func TestInterruptedWaits(t *testing.T) {
	for _, variable := range []string{"XDG_STATE_HOME", "XDG_RUNTIME_DIR", "HOME"} {
		t.Setenv(variable, t.TempDir())
	}
	var cover func(cmd *cobra.Command)
	cover = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			cover(c)
		}
		name := strings.TrimPrefix(cmd.CommandPath(), "virtctl ")
		if _, listed := interrupts[name]; cmd.Flags().Lookup("wait") != nil && !listed {
			t.Errorf("virtctl %s has --wait, and nothing here interrupts it", name)
		}
	}
	cover(NewCommand(cli.NewFactory("virtctl", cli.NoStreams(), func(string) string { return "" })))
	var group sync.WaitGroup
	defer group.Wait()
	for name, line := range interrupts {
		if line == "" {
			continue
		}
		a := newApart(t)
		group.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out, errOut, code := begin(ctx, a, fields(line))
			settled(t, a, code)
			cancel()
			if got := <-code; got != cli.ExitInterrupted || !goesOn.MatchString(errOut.String()) {
				t.Errorf("%s: virtctl %s ended with %d, and says\n%s%s", name, line, got, out, errOut)
			}
		})
	}
}
