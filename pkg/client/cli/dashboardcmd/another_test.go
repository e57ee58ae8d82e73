package dashboardcmd

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/action/clone"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/client/action/volume"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// TestAnotherIsSpared: what was made anew under the name of what was shown is not changed by any action.
func TestAnotherIsSpared(t *testing.T) {
	t.Parallel()
	api := clienttest.New(t)
	object := func(path string, fields map[string]any) {
		fields["metadata"] = map[string]any{"namespace": "prod", "name": "web", "uid": "new", "resourceVersion": "7"}
		api.Put(path, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(w).Encode(fields); err != nil {
				t.Error(err)
			}
		}))
	}
	const kubevirt, core = "/apis/kubevirt.io/v1/namespaces/prod/", "/api/v1/namespaces/prod/"
	object(kubevirt+"virtualmachines/web", map[string]any{"spec": map[string]any{
		"runStrategy": "Always",
		"template": map[string]any{"spec": map[string]any{"volumes": []any{map[string]any{
			"name": "data", "persistentVolumeClaim": map[string]any{"claimName": "web"},
		}}}},
	}})
	object(kubevirt+"virtualmachineinstances/web", map[string]any{"status": map[string]any{"phase": "Running"}})
	object(core+"persistentvolumeclaims/web", map[string]any{
		"spec": map[string]any{
			"storageClassName": "fast", "resources": map[string]any{"requests": map[string]any{"storage": "2Gi"}},
		},
		"status": map[string]any{"phase": "Bound", "capacity": map[string]any{"storage": "2Gi"}},
	})
	api.Put("/apis/storage.k8s.io/v1/storageclasses/fast", map[string]any{"allowVolumeExpansion": true})
	object("/apis/snapshot.kubevirt.io/v1beta1/namespaces/prod/virtualmachinesnapshots/web", map[string]any{})
	object("/apis/pool.kubevirt.io/v1beta1/namespaces/prod/virtualmachinepools/web",
		map[string]any{
			"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool",
			"spec": map[string]any{"replicas": 1},
		})
	dir := t.TempDir()
	a := &actions{client: api.Client(), factory: cli.NewFactory("virtctl", cli.NoStreams(),
		func(name string) string { return map[string]string{"XDG_STATE_HOME": dir}[name] })}
	vm := lifecycle.Target{Namespace: "prod", Name: "web", UID: "shown"}
	lone := lifecycle.Target{Namespace: "prod", Name: "web", UID: "shown", Instance: true}
	saved := &store.Snapshot{Namespace: "prod", Name: "web", Resource: store.Snapshots, UID: "shown"}
	key, file := store.Key{Namespace: "prod", Name: "web"}, filepath.Join(dir, "web.tar")
	actions := map[string]func(context.Context) error{
		"plug":   func(ctx context.Context) error { return a.Plug(ctx, vm, volume.Options{Volume: "web"}) },
		"unplug": func(ctx context.Context) error { return a.Unplug(ctx, vm, volume.Options{Volume: "data"}) },
		"unplug 1": func(ctx context.Context) error {
			return a.Unplug(ctx, lone, volume.Options{Volume: "data", Instance: true})
		},
		"resize":   func(ctx context.Context) error { return a.Resize(ctx, vm, "data", resource.MustParse("4Gi")) },
		"move":     func(ctx context.Context) error { return a.Move(ctx, vm, nil, "fast") },
		"no move":  func(ctx context.Context) error { return a.CancelMove(ctx, vm) },
		"snapshot": func(ctx context.Context) error { return a.TakeSnapshot(ctx, vm, "s", snapshot.Options{}) },
		"clone": func(ctx context.Context) error {
			_, err := a.Clone(ctx, saved, clone.Options{Source: "web", FromSnapshot: true, Target: "two"})
			return err
		},
		"export": func(ctx context.Context) error {
			return a.Export(ctx, page.Export{Key: key, UID: "shown", File: file}, &page.Transfer{})
		},
		"export of a snapshot": func(ctx context.Context) error {
			return a.Export(ctx, page.Export{Key: key, UID: "shown", Snapshot: true, File: file}, &page.Transfer{})
		},
		"scale": func(ctx context.Context) error {
			set := &store.Set{Namespace: "prod", Name: "web", Resource: store.Pools, UID: "shown", Desired: 1}
			return a.Scale(ctx, set, 5)
		},
	}
	for _, verb := range []lifecycle.Verb{
		lifecycle.Start, lifecycle.Stop, lifecycle.Restart, lifecycle.Pause, lifecycle.Unpause, lifecycle.Reset,
		lifecycle.SoftReboot, lifecycle.Migrate, lifecycle.MigrateCancel,
	} {
		actions[string(verb)] = func(ctx context.Context) error { return a.Do(ctx, verb, vm) }
	}
	for name, do := range actions {
		err := do(t.Context())
		var taken *snapshot.SnapshotChangedError
		if !errors.Is(err, action.ErrNotFound) && !errors.As(err, &taken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, r := range api.Asked("") {
		if r.Method != http.MethodGet {
			t.Errorf("asked %s %s", r.Method, r.URL.Path)
		}
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a file was written")
	}
}
