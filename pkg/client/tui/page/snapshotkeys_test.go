package page

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
)

// Who deletes a restore that could be undone is told so.
func TestConsequenceOfDeletingRestore(t *testing.T) {
	for want, row := range map[string]*store.Snapshot{
		"cannot be undone any more": {Resource: store.Restores, Ended: true, Kept: true},
		"only this record goes":     {Resource: store.Restores, Ended: true},
		"it is under way":           {Resource: store.Restores},
	} {
		if got := (saved{}).consequence(row); !strings.Contains(got, want) {
			t.Errorf("%+v: %q", row, got)
		}
	}
}

// Who deletes a snapshot is told which VM goes on from its memory at the next start.
func TestConsequenceOfDeletingMemory(t *testing.T) {
	w := &World{Machines: store.NewMachines(func() {}), Snapshots: store.NewSnapshotTables(func() {})}
	content := &store.Content{Namespace: "ns", Name: "content", Memory: "m"}
	w.Snapshots.Contents.Load(map[store.Key]*store.Content{{Namespace: "ns", Name: "content"}: content})
	snap := &store.Snapshot{Namespace: "ns", Name: "snap", Resource: store.Snapshots, Content: "content"}
	for mark, want := range map[string]bool{
		`{"claim":"m","restore":"r"}`: true, `{"claim":"another","restore":"r"}`: false, "": false,
	} {
		vm := v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mem"}}
		if mark != "" {
			vm.Annotations = map[string]string{savedmemory.ResumeAnnotation: mark}
		}
		w.Machines.Load([]v1.VirtualMachine{vm}, nil)
		got := (saved{world: w}).consequence(snap)
		if strings.Contains(got, "VM mem, which goes on from its memory at its next start") != want {
			t.Errorf("%s: %q", mark, got)
		}
	}
}
