package dashboardcmd

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// TestUndoOfSeveral takes back what was done to several machines, in two namespaces, by one undo; and what was refused
// is said of each.
func TestUndoOfSeveral(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex // an undo asks them side by side
	var asked []string
	api := clienttest.New(t)
	var targets []lifecycle.Target
	for _, name := range []string{"prod/web", "prod/db", "test/web", "test/no", "test/non"} {
		namespace, name, _ := strings.Cut(name, "/")
		targets = append(targets, lifecycle.Target{Namespace: namespace, Name: name})
		path := "namespaces/" + namespace + "/virtualmachineinstances/" + name
		vmi := map[string]any{
			"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
			"metadata": map[string]any{"namespace": namespace, "name": name, "uid": namespace + name},
			"status":   map[string]any{"phase": "Running"},
		}
		api.Put("/apis/kubevirt.io/v1/"+path, vmi)
		if strings.HasPrefix(name, "no") {
			continue
		}
		for _, verb := range []string{"pause", "unpause"} {
			api.Put("/apis/subresources.kubevirt.io/v1/"+path+"/"+verb,
				http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					mu.Lock()
					defer mu.Unlock()
					asked = append(asked, verb+" "+namespace+"/"+name)
					vmi["status"] = map[string]any{"phase": "Running", "conditions": []map[string]any{
						{"type": "Paused", "status": map[bool]string{true: "True", false: "False"}[verb == "pause"]},
					}}
					api.Put("/apis/kubevirt.io/v1/"+path, vmi)
				}))
		}
	}
	state := t.TempDir()
	a := &actions{client: api.Client(), factory: cli.NewFactory("virtctl", cli.NoStreams(),
		func(name string) string { return map[string]string{"XDG_STATE_HOME": state}[name] })}
	ctx := context.Background()
	err := a.Do(ctx, lifecycle.Pause, targets...)
	if said := strings.Split(cli.Explain(err, cli.Connection{}), "\n"); len(said) != 2 {
		t.Errorf("of two that were refused it says %q", said)
	}
	last, err := a.Undoable(ctx)
	if err != nil || last.Machines != "VM prod/web, VM prod/db, VM test/web" {
		t.Fatalf("%+v, %v", last, err)
	}
	if err := a.Undo(ctx, last.ID); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"pause prod/db", "pause prod/web", "pause test/web", "unpause prod/db", "unpause prod/web", "unpause test/web",
	}
	for _, part := range [][]string{asked[:min(3, len(asked))], asked[min(3, len(asked)):]} { // side by side
		slices.Sort(part)
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Error(diff)
	}
	var many []lifecycle.Target
	for range 12 {
		many = append(many, targets[0])
	}
	if err := a.Do(ctx, lifecycle.Pause, many...); err != nil {
		t.Fatal(err)
	}
	last, err = a.Undoable(ctx)
	if err != nil || !strings.HasPrefix(last.Machines, "12 machines: VM prod/web, ") ||
		!strings.HasSuffix(last.Machines, " and 2 more") || strings.Count(last.Machines, "prod/web") != 10 {
		t.Errorf("of many it asks %q, %v", last.Machines, err)
	}
}

// TestUndoOfTheLastVerb takes back what the dashboard did last, and that once.
func TestUndoOfTheLastVerb(t *testing.T) {
	t.Parallel()
	var asked []string
	vm := func(strategy string) map[string]any {
		return map[string]any{
			"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
			"metadata": map[string]any{"namespace": "prod", "name": "web", "uid": "u"},
			"spec":     map[string]any{"runStrategy": strategy, "template": map[string]any{"spec": map[string]any{}}},
		}
	}
	const name = "namespaces/prod/virtualmachines/web"
	api := clienttest.New(t)
	note := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.Path)
		api.Put("/apis/kubevirt.io/v1/"+name, vm("Halted"))
	})
	api.Put("/apis/kubevirt.io/v1/"+name, vm("Always"))
	api.Put("/apis/subresources.kubevirt.io/v1/"+name+"/stop", note)
	api.Put("/apis/subresources.kubevirt.io/v1/"+name+"/start", note)
	state := t.TempDir()
	a := &actions{client: api.Client(), factory: cli.NewFactory("virtctl", cli.NoStreams(),
		func(name string) string { return map[string]string{"XDG_STATE_HOME": state}[name] })}
	ctx := context.Background()
	if _, err := a.Undoable(ctx); err == nil || !strings.Contains(err.Error(), "nothing to undo") {
		t.Errorf("before anything was done: %v", err)
	}
	if err := a.Do(ctx, lifecycle.Stop, lifecycle.Target{Namespace: "prod", Name: "web"}); err != nil {
		t.Fatal(err)
	}
	last, err := a.Undoable(ctx)
	if err != nil || last.Verb != lifecycle.Stop || !strings.Contains(last.Machines, "prod/web") {
		t.Fatalf("%+v, %v", last, err)
	}
	if err := a.Undo(ctx, last.ID); err != nil {
		t.Fatal(err)
	}
	const prefix = "PUT /apis/subresources.kubevirt.io/v1/" + name
	if diff := cmp.Diff([]string{prefix + "/stop", prefix + "/start"}, asked); diff != "" {
		t.Error(diff)
	}
	if err := a.Undo(ctx, last.ID); err == nil || !strings.Contains(err.Error(), "undone already") {
		t.Errorf("a second time: %v", err)
	}
}

// TestCutOffIsCounted says how many machines a verb was done to when the server was lost amid it.
func TestCutOffIsCounted(t *testing.T) {
	t.Parallel()
	api := clienttest.New(t)
	var targets []lifecycle.Target
	for i, name := range []string{"a", "b", "c"} {
		targets = append(targets, lifecycle.Target{Namespace: "prod", Name: name})
		path := "namespaces/prod/virtualmachineinstances/" + name
		vmi := map[string]any{
			"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
			"metadata": map[string]any{"namespace": "prod", "name": name, "uid": name},
			"status":   map[string]any{"phase": "Running"},
		}
		api.Put("/apis/kubevirt.io/v1/"+path, vmi)
		api.Put("/apis/subresources.kubevirt.io/v1/"+path+"/pause",
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if i > 0 {
					panic(http.ErrAbortHandler)
				}
				vmi["status"] = map[string]any{"phase": "Running", "conditions": []map[string]any{
					{"type": "Paused", "status": "True"},
				}}
				api.Put("/apis/kubevirt.io/v1/"+path, vmi)
			}))
	}
	state := t.TempDir()
	a := &actions{client: api.Client(), factory: cli.NewFactory("virtctl", cli.NoStreams(),
		func(name string) string { return map[string]string{"XDG_STATE_HOME": state}[name] })}
	said := cli.Explain(a.Do(t.Context(), lifecycle.Pause, targets...), cli.Connection{})
	if !strings.HasSuffix(said, "pause was done to 1 of 3 machines") {
		t.Errorf("it says %q", said)
	}
}

// TestManyAtOnce asks several machines side by side, and none more once the server has not answered.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	api := clienttest.New(t)
	var targets []lifecycle.Target
	var mu sync.Mutex
	asked, together := 0, make(chan struct{})
	const atOnce = 8
	for i := range 100 {
		name := fmt.Sprintf("vm-%02d", i)
		targets = append(targets, lifecycle.Target{Namespace: "prod", Name: name})
		api.Put("/apis/kubevirt.io/v1/namespaces/prod/virtualmachines/"+name,
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				mu.Lock()
				if asked++; asked == atOnce {
					close(together)
				}
				mu.Unlock()
				<-together // one after the other would wait for ever
				panic(http.ErrAbortHandler)
			}))
	}
	f := cli.NewFactory("virtctl", cli.NoStreams(), func(string) string { return "" })
	a := &actions{client: api.Client(), factory: f}
	said := cli.Explain(a.Do(t.Context(), lifecycle.Delete, targets...), cli.Connection{})
	if !strings.HasSuffix(said, "delete was done to 0 of 100 machines") {
		t.Errorf("it says %q", said)
	}
	if mu.Lock(); asked == 100 {
		t.Error("all were asked of a server that does not answer")
	}
	mu.Unlock()
}
