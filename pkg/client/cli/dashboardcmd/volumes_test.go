package dashboardcmd

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/action/journal"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/action/volume"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

func TestVolumesArePluggedAndUnplugged(t *testing.T) {
	t.Parallel()
	var asked []string
	note := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		asked = append(asked, r.URL.Path+" "+string(body))
	})
	const subresources = "/apis/subresources.kubevirt.io/v1/namespaces/prod/"
	api := clienttest.New(t)
	api.Put("/api/v1/namespaces/prod/persistentvolumeclaims/data",
		map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": map[string]any{"name": "data"}})
	api.Put(subresources+"virtualmachines/web/addvolume", note)
	api.Put(subresources+"virtualmachineinstances/web/removevolume", note)
	state := t.TempDir()
	f := cli.NewFactory("virtctl", cli.NoStreams(),
		func(name string) string { return map[string]string{"XDG_STATE_HOME": state}[name] })
	a := &actions{
		factory: f, client: api.Client(),
		rules: granted(map[string]*authorizationv1.SubjectRulesReviewStatus{
			"prod": {ResourceRules: []authorizationv1.ResourceRule{
				{
					Verbs: []string{"update"}, APIGroups: []string{"subresources.kubevirt.io"},
					Resources: []string{"virtualmachines/addvolume"},
				},
			}},
		}),
	}
	machine := lifecycle.Target{Namespace: "prod", Name: "web"}
	if err := a.Plug(context.Background(), machine, volume.Options{Volume: "data"}); err != nil {
		t.Error(err)
	}
	if err := a.Unplug(context.Background(), machine, volume.Options{Volume: "data", Instance: true}); err != nil {
		t.Error(err)
	}
	want := []string{
		subresources +
			`virtualmachines/web/addvolume {"name":"data","disk":{"name":"data","disk":{"bus":"scsi"},"serial":"data"},"volumeSource":{"persistentVolumeClaim":{"claimName":"data","hotpluggable":true}}}`,
		subresources + `virtualmachineinstances/web/removevolume {"name":"data"}`,
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Error(diff)
	}
	// An undo must not pass them over.
	entries, err := journal.File{Path: filepath.Join(state, "virtkit", "journal.jsonl")}.Read()
	if err != nil || len(entries) != 2 || entries[0].Verb != lifecycle.AddVolume ||
		entries[1].Verb != lifecycle.RemoveVolume || !entries[1].Machines[0].Instance {
		t.Errorf("the journal has %+v, %v", entries, err)
	}
	if why := a.ForbiddenTo("prod", "update", "virtualmachines/addvolume"); why != "" {
		t.Errorf("what is allowed is refused: %s", why)
	}
	if a.ForbiddenTo("prod", "update", "virtualmachines/removevolume") == "" {
		t.Error("what is not allowed is not refused")
	}
}

// TestVolumesAreResized: the claim gets the size, and the journal has it; a smaller one is refused.
func TestVolumesAreResized(t *testing.T) {
	t.Parallel()
	var asked []string
	api := clienttest.New(t)
	const claim = `{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "prod"},
		"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "2Gi"}}},
		"status": {"phase": "Bound", "capacity": {"storage": "2Gi"}}}`
	api.Put("/api/v1/namespaces/prod/persistentvolumeclaims/data", http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPatch {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				asked = append(asked, string(body))
			}
			w.Header().Set("Content-Type", "application/json")
			if _, err := io.WriteString(w, claim); err != nil {
				t.Error(err)
			}
		}))
	api.Put("/apis/storage.k8s.io/v1/storageclasses/fast", map[string]any{"allowVolumeExpansion": true})
	api.Put("/apis/kubevirt.io/v1/namespaces/prod/virtualmachines/web", map[string]any{
		"metadata": map[string]any{"name": "web", "namespace": "prod"},
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"volumes": []any{map[string]any{
			"name": "data", "persistentVolumeClaim": map[string]any{"claimName": "data"},
		}}}}},
	})
	state := t.TempDir()
	f := cli.NewFactory("virtctl", cli.NoStreams(),
		func(name string) string { return map[string]string{"XDG_STATE_HOME": state}[name] })
	a := &actions{factory: f, client: api.Client()}
	machine := lifecycle.Target{Namespace: "prod", Name: "web"}
	if err := a.Resize(t.Context(), machine, "data", resource.MustParse("4Gi")); err != nil {
		t.Error(err)
	}
	if err := a.Resize(t.Context(), machine, "data", resource.MustParse("1Gi")); err == nil {
		t.Error("it shrinks")
	}
	if diff := cmp.Diff([]string{`{"spec":{"resources":{"requests":{"storage":"4Gi"}}}}`}, asked); diff != "" {
		t.Error(diff)
	}
	entries, err := journal.File{Path: filepath.Join(state, "virtkit", "journal.jsonl")}.Read()
	if err != nil || len(entries) != 1 || entries[0].Verb != "volume resize" {
		t.Errorf("journal %+v, %v", entries, err)
	}
}
