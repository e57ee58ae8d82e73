package dashboardcmd

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	volumesnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/action/clone"
	"github.com/virtkit/virtkit/pkg/client/action/journal"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/store"
)

// TestSnapshotActions does what the page of snapshots asks for against an API server that is played.
func TestSnapshotActions(t *testing.T) {
	t.Parallel()
	const prod = "/apis/snapshot.kubevirt.io/v1beta1/namespaces/prod/"
	object := map[string]any{
		"apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineSnapshot",
		"metadata": map[string]any{"namespace": "prod", "name": "s", "uid": "u"},
		"spec": map[string]any{
			"source": map[string]any{"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "db"},
		},
		"status": map[string]any{
			"readyToUse":      true,
			"phase":           "Succeeded",
			"snapshotVolumes": map[string]any{"includedVolumes": []string{"root"}},
		},
	}
	var asked []string
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(v); err != nil {
			t.Error(err)
		}
	}
	note := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if r.Method == http.MethodPost {
			var sent map[string]any
			if err := json.Unmarshal(body, &sent); err != nil {
				t.Error(err)
			}
			spec, err := json.Marshal(sent["spec"])
			if err != nil {
				t.Error(err)
			}
			asked = append(asked,
				sent["kind"].(string)+" "+sent["metadata"].(map[string]any)["name"].(string)+" "+string(spec))
			answer(w, sent)
			return
		}
		if r.Method != http.MethodGet {
			asked = append(asked, r.Method+" "+string(body))
		}
		answer(w, object)
	})
	api := clienttest.New(t)
	api.Put(prod+"virtualmachinesnapshots", note)
	api.Put(prod+"virtualmachinesnapshots/s", note)
	api.Put(prod+"virtualmachinerestores", note)
	api.Put("/apis/clone.kubevirt.io/v1beta1/namespaces/prod/virtualmachineclones", note)
	api.Put("/apis/kubevirt.io/v1/namespaces/prod/virtualmachines/db",
		map[string]any{"metadata": map[string]any{"namespace": "prod", "name": "db"}})
	api.Put("/apis/kubevirt.io/v1/namespaces/prod/virtualmachineinstances/db", map[string]any{
		"metadata": map[string]any{"namespace": "prod", "name": "db"},
		"status":   map[string]any{"phase": "Running"},
	})
	state := t.TempDir()
	f := cli.NewFactory("virtctl", cli.NoStreams(),
		func(name string) string { return map[string]string{"XDG_STATE_HOME": state}[name] })
	f.RandomName = func(int) string { return "abcde" }
	a := &actions{
		client: api.Client(), factory: f,
		rules: granted(map[string]*authorizationv1.SubjectRulesReviewStatus{
			"prod": {ResourceRules: []authorizationv1.ResourceRule{
				{
					Verbs: []string{"create"}, APIGroups: []string{"snapshot.kubevirt.io"},
					Resources: []string{"virtualmachinesnapshots"},
				},
			}},
		}),
	}
	ctx, key := context.Background(), store.Key{Namespace: "prod", Name: "s"}
	if err := a.TakeSnapshot(ctx, lifecycle.Target{Namespace: "prod", Name: "db"},
		"s", snapshot.Options{Policy: "Retain"}); err != nil {
		t.Error(err)
	}
	plan, err := a.RestorePlan(ctx, key, "db")
	if err != nil || !plan.Exists || !plan.Runs || plan.Target != "db" || len(plan.Volumes) != 1 {
		t.Errorf("%+v, %v", plan, err)
	}
	var runs *snapshot.RunsError
	if _, err := a.Restore(ctx, key, snapshot.RestoreOptions{Target: "db"}); !errors.As(err, &runs) {
		t.Errorf("a VM that runs was restored: %v", err)
	}
	if name, err := a.Restore(ctx, key, snapshot.RestoreOptions{Target: "db", Stop: true}); err != nil ||
		name != "restore-s-abcde" {
		t.Errorf("%q, %v", name, err)
	}
	// An undo finds it, or says why it cannot.
	entries, err := journal.File{Path: filepath.Join(state, "virtkit", "journal.jsonl")}.Read()
	if err != nil || len(entries) != 2 || entries[1].Verb != lifecycle.Restore ||
		entries[1].Machines[0].Restore != "restore-s-abcde" {
		t.Errorf("the journal has %+v, %v", entries, err)
	}
	shown := &store.Snapshot{Namespace: "prod", Name: "s", Resource: store.Snapshots}
	cloned := clone.Options{Source: "s", FromSnapshot: true, Target: "two"}
	if name, err := a.Clone(ctx, shown, cloned); err != nil || name != "clone-abcde" {
		t.Errorf("%q, %v", name, err)
	}
	s := &store.Snapshot{Namespace: "prod", Name: "s", Resource: store.Snapshots, UID: "u"}
	if err := a.DeleteSnapshot(ctx, s); err != nil {
		t.Error(err)
	}
	journaled(t, state, "snapshot create of prod/db", "restore of VM prod/db", "clone of prod/clone-abcde",
		"snapshot delete of snapshot/s")
	want := []string{
		`VirtualMachineSnapshot s {"deletionPolicy":"Retain","source":{"apiGroup":"kubevirt.io","kind":"VirtualMachine","name":"db"}}`,
		`VirtualMachineRestore restore-s-abcde {"target":{"apiGroup":"kubevirt.io","kind":"VirtualMachine","name":"db"},"targetReadinessPolicy":"StopTarget","virtualMachineSnapshotName":"s"}`,
		`VirtualMachineClone clone-abcde {"source":{"apiGroup":"snapshot.kubevirt.io","kind":"VirtualMachineSnapshot","name":"s"},"target":{"apiGroup":"kubevirt.io","kind":"VirtualMachine","name":"two"},"template":{}}`,
		`DELETE {"preconditions":{"uid":"u"}}`,
	}
	if got := strings.Join(asked, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("asked for\n%s\nnot\n%s", got, strings.Join(want, "\n"))
	}
	if report, err := a.WhySnapshot(ctx, s); err != nil || report.Verdict != "ok" {
		t.Errorf("%+v, %v", report, err)
	}
	if text, err := a.Object(ctx, store.Snapshots, "prod", "s"); err != nil ||
		!strings.Contains(text, "kind: VirtualMachineSnapshot") {
		t.Errorf("%s, %v", text, err)
	}
	for resource, may := range map[string]bool{store.Snapshots: true, store.Restores: false, store.Clones: false} {
		if why := a.ForbiddenTo("prod", "create", resource); may != (why == "") {
			t.Errorf("%s: %q", resource, why)
		}
	}
}

// TestSnapshotSources lists the kinds that the page follows besides those that other commands do.
func TestSnapshotSources(t *testing.T) {
	t.Parallel()
	api := clienttest.New(t)
	api.Put("/apis/snapshot.kubevirt.io/v1beta1/namespaces/prod/"+store.Contents, map[string]any{
		"apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineSnapshotContentList",
		"metadata": map[string]any{}, "items": []any{map[string]any{"metadata": map[string]any{"name": "c"}}},
	})
	api.Put("/apis/snapshot.storage.k8s.io/v1/namespaces/prod/"+store.VolumeSnapshots, map[string]any{
		"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotList", "metadata": map[string]any{},
		"items": []any{
			map[string]any{"metadata": map[string]any{"name": "v"}, "status": map[string]any{"restoreSize": "3Gi"}},
		},
	})
	list, err := source(api.Client(), nil, snapshotv1beta1.SchemeGroupVersion, store.Contents,
		"prod").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if c := list.(*snapshotv1beta1.VirtualMachineSnapshotContentList); len(c.Items) != 1 || c.Items[0].Name != "c" {
		t.Errorf("%+v", list)
	}
	list, err = source(api.Client(), nil, volumesnapshotv1.SchemeGroupVersion, store.VolumeSnapshots,
		"prod").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if row := snapshot.VolumeSnapshotRow(&list.(*volumesnapshotv1.VolumeSnapshotList).Items[0]); row.Name != "v" ||
		row.Size.String() != "3Gi" {
		t.Errorf("%+v", row)
	}
}

// journaled checks what undo knows of.
func journaled(t *testing.T, state string, want ...string) {
	t.Helper()
	entries, err := journal.File{Path: filepath.Join(state, "virtkit", "journal.jsonl")}.Read()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range entries {
		got = append(got, entries[i].String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("the journal has %q, want %q", got, want)
	}
}
