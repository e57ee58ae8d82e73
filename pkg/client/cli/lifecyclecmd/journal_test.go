package lifecyclecmd

import (
	"net/http"
	"testing"
	"time"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/action/journal"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// What the dashboard asks is in the journal that undo reads, with what is needed to take it back; what was refused is
// not.
func TestDoIsJournalled(t *testing.T) {
	dir := t.TempDir()
	streams := cli.NoStreams()
	f := cli.NewFactory("virtctl", streams, func(name string) string {
		return map[string]string{"XDG_STATE_HOME": dir, "HOME": dir}[name]
	})
	f.Now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }
	api := clienttest.New(t)
	const vms, subresources = "/apis/kubevirt.io/v1/namespaces/ns/virtualmachines/",
		"/apis/subresources.kubevirt.io/v1/namespaces/ns/virtualmachines/"
	for _, name := range []string{"web", "db"} {
		api.Put(vms+name, map[string]any{
			"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
			"metadata": map[string]any{"namespace": "ns", "name": name, "uid": name + "-uid"},
			"spec":     map[string]any{"runStrategy": "Always"},
		})
	}
	api.Put(subresources+"web/stop", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
	}))
	api.Put(subresources+"db/stop", clienttest.Forbidden("virtualmachines"))
	for name, fails := range map[string]bool{"web": false, "db": true} {
		err := Do(t.Context(), f, api.Client(), lifecycle.Stop, lifecycle.Target{Namespace: "ns", Name: name})
		if (err != nil) != fails {
			t.Errorf("%s: %v", name, err)
		}
	}
	file, err := journalOf(f)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := file.Read()
	if err != nil || len(entries) != 1 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	e := entries[0]
	if e.Verb != lifecycle.Stop || len(e.Machines) != 1 || e.Machines[0].Name != "web" ||
		e.Machines[0].UID != "web-uid" || e.Machines[0].Before != "Always" {
		t.Errorf("entry %+v", e)
	}
	if _, ok := journal.Last(entries, e.Server); !ok {
		t.Error("undo does not find it")
	}
}
