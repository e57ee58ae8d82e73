package dashboardcmd

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

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
