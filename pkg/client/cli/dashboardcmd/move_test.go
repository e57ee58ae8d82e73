package dashboardcmd

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/action/journal"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// TestVolumesAreMoved: a claim of the class is made, the VM names it, and the journal has that; a class that is not
// there is refused before, and so is a cancel of nothing.
func TestVolumesAreMoved(t *testing.T) {
	t.Parallel()
	const (
		spec = `"domain": {"devices": {"disks": [{"name": "data", "disk": {"bus": "virtio"}}]}},
			"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]`
		claim = `{"apiVersion": "v1", "kind": "PersistentVolumeClaim",
			"metadata": {"name": "data", "namespace": "prod"}, "spec": {"storageClassName": "slow", "accessModes": ["ReadWriteOnce"],
				"resources": {"requests": {"storage": "2Gi"}}},
			"status": {"phase": "Bound", "capacity": {"storage": "2Gi"}}}`
		vm = `{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
			"metadata": {"name": "web", "namespace": "prod", "resourceVersion": "7"},
			"spec": {"template": {"spec": {` + spec + `}}}}`
		vmi = `{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
			"metadata": {"name": "web", "namespace": "prod"}, "spec": {` + spec + `},
			"status": {"phase": "Running", "volumeStatus": [{"name": "data", "target": "vdb", "size": 1073741824,
				"persistentVolumeClaimInfo": {"claimName": "data", "accessModes": ["ReadWriteOnce"]}}]}}`
	)
	api := clienttest.New(t)
	var asked []string
	serve := func(path, object string) {
		api.Put(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			if r.Method != http.MethodGet {
				asked = append(asked, r.Method+" "+string(body))
			}
			w.Header().Set("Content-Type", "application/json")
			answer := object
			if r.Method == http.MethodPost {
				answer = string(body)
			}
			if _, err := io.WriteString(w, answer); err != nil {
				t.Error(err)
			}
		}))
	}
	const core, kubevirt = "/api/v1/namespaces/prod/persistentvolumeclaims", "/apis/kubevirt.io/v1/"
	serve(core, `{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "items": []}`)
	serve(core+"/data", claim)
	serve(kubevirt+"namespaces/prod/virtualmachines/web", vm)
	serve(kubevirt+"namespaces/prod/virtualmachineinstances/web", vmi)
	serve(kubevirt+"kubevirts", `{"apiVersion": "kubevirt.io/v1", "kind": "KubeVirtList", "items": []}`)
	serve("/apis/storage.k8s.io/v1/storageclasses/fast", `{"metadata": {"name": "fast"}}`)
	serve("/apis/storage.k8s.io/v1/storageclasses",
		`{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
			"items": [{"metadata": {"name": "fast"}}]}`)
	state := t.TempDir()
	f := cli.NewFactory("virtctl", cli.NoStreams(),
		func(name string) string { return map[string]string{"XDG_STATE_HOME": state}[name] })
	a := &actions{factory: f, client: api.Client()}
	machine := lifecycle.Target{Namespace: "prod", Name: "web"}
	if err := a.Move(t.Context(), machine, nil, "fats"); err == nil || len(asked) > 0 {
		t.Errorf("a class that is not there: %v, asked %q", err, asked)
	}
	if err := a.CancelMove(t.Context(), machine); err == nil || len(asked) > 0 {
		t.Errorf("nothing to cancel: %v, asked %q", err, asked)
	}
	if err := a.Move(t.Context(), machine, []string{"data"}, "fast"); err != nil {
		t.Fatal(err)
	}
	if len(asked) != 2 || !strings.HasPrefix(asked[0], "POST ") || !strings.Contains(asked[0], `"fast"`) ||
		!strings.HasPrefix(asked[1], "PATCH ") || !strings.Contains(asked[1], `"data-m1"`) {
		t.Errorf("asked %q", asked)
	}
	entries, err := journal.File{Path: filepath.Join(state, "virtkit", "journal.jsonl")}.Read()
	if err != nil || len(entries) != 1 || entries[0].Verb != "volume migrate" {
		t.Errorf("journal %+v, %v", entries, err)
	}
}
