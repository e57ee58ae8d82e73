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

// The dashboard reads of a cancel what the command says: that it came too late, or that disks are being copied.
func TestDoCancels(t *testing.T) {
	dir := t.TempDir()
	f := cli.NewFactory("virtctl", cli.NoStreams(), func(name string) string {
		return map[string]string{"XDG_STATE_HOME": dir, "HOME": dir}[name]
	})
	const kubevirt = "/apis/kubevirt.io/v1/namespaces/ns/"
	type object = map[string]any
	for name, c := range map[string]struct {
		spec, before, after object
		want                string
	}{
		"in time": {
			object{},
			object{"migrationUid": "m"},
			object{"migrationUid": "m", "completed": true, "failed": true},
			"",
		},
		"too late": {
			object{},
			object{"migrationUid": "m"},
			object{"migrationUid": "m", "completed": true},
			"migrate-cancel VM ns/web: it came too late: the guest has moved and runs on node2",
		},
		"of volume migrate": {
			object{"volumes": []object{{"name": "data", "persistentVolumeClaim": object{"claimName": "new"}}}},
			object{"migrationUid": "m"},
			nil,
			"migrate-cancel VM ns/web: its disks are being copied to other claims, which only `virtctl volume " +
				"migrate web -n ns --cancel` cancels: virt-controller would make the migration anew",
		},
	} {
		api := clienttest.New(t)
		put := func(state object) {
			vmi := object{
				"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
				"metadata": object{"namespace": "ns", "name": "web", "uid": "vmi"}, "spec": c.spec,
				"status": object{
					"phase": "Running", "nodeName": "node2", "migrationState": state,
					"volumeStatus": []object{{"name": "data", "persistentVolumeClaimInfo": object{"claimName": "old"}}},
				},
			}
			api.Put(kubevirt+"virtualmachineinstances/web", vmi)
			api.Put(kubevirt+"virtualmachineinstances", object{"items": []object{vmi}})
		}
		put(c.before)
		api.Put(kubevirt+"virtualmachineinstancemigrations", object{"items": []object{{
			"metadata": object{"namespace": "ns", "name": "move", "uid": "m"}, "spec": object{"vmiName": "web"},
			"status": object{"phase": "Running"},
		}}})
		deleted := false
		api.Put(kubevirt+"virtualmachineinstancemigrations/move", http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) {
				deleted = true
				put(c.after)
				api.Put(kubevirt+"virtualmachineinstancemigrations", object{"items": []object{}})
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Success"}`))
			}))
		err := Do(t.Context(), f, api.Client(), lifecycle.MigrateCancel, lifecycle.Target{Namespace: "ns", Name: "web"})
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want || deleted != (c.after != nil) {
			t.Errorf("%s: %q, deleted %t; want %q", name, got, deleted, c.want)
		}
	}
}
