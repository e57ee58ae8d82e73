package store

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestMaker names the object that made another, else the program that wrote it first; not one that writes its status.
func TestMaker(t *testing.T) {
	wrote := func(manager, subresource string, minute int) metav1.ManagedFieldsEntry {
		at := metav1.NewTime(time.Date(2026, 1, 2, 3, minute, 0, 0, time.UTC))
		fields := `{"f:spec":{"f:source":{}}}`
		if manager == "virt-controller" {
			fields = `{"f:metadata":{"f:finalizers":{}}}`
		}
		return metav1.ManagedFieldsEntry{
			Manager: manager, Subresource: subresource, Time: &at, FieldsV1: metav1.NewFieldsV1(fields),
		}
	}
	o := &metav1.ObjectMeta{}
	if got := MakerOf(o); got != "" {
		t.Errorf("of nothing: %q", got)
	}
	o.ManagedFields = []metav1.ManagedFieldsEntry{
		wrote("virt-controller", "status", 1), wrote("virt-controller", "", 2), wrote("kubectl-edit", "", 3),
		wrote("virtctl", "", 2),
	}
	if got := MakerOf(o); got != "virtctl" {
		t.Errorf("%q", got)
	}
	yes := true
	o.OwnerReferences = []metav1.OwnerReference{{Kind: "VirtualMachine", Name: "v", Controller: &yes}}
	if got := MakerOf(o); got != "virtctl" {
		t.Errorf("of a VM's: %q", got)
	}
	o.OwnerReferences = []metav1.OwnerReference{{Kind: "VirtualMachineClone", Name: "c", Controller: &yes}}
	if got := MakerOf(o); got != "VirtualMachineClone/c" {
		t.Errorf("%q", got)
	}
}

// TestSnapshotRows leaves out the restores that clones have made, and finds each row by its key.
func TestSnapshotRows(t *testing.T) {
	tables := NewSnapshotTables(func() {})
	s := &Snapshot{Namespace: "a", Name: "x", Resource: Snapshots}
	r := &Snapshot{Namespace: "a", Name: "x", Resource: Restores, Of: "x"}
	own := &Snapshot{Namespace: "a", Name: "of-clone", Resource: Restores, Of: "x"}
	other := &Snapshot{Namespace: "b", Name: "of-clone", Resource: Restores}
	c := &Snapshot{Namespace: "a", Name: "x", Resource: Clones, Of: "x", Restore: "of-clone"}
	tables.Snapshots.Load(map[Key]*Snapshot{s.Object(): s})
	tables.Restores.Load(map[Key]*Snapshot{r.Object(): r, own.Object(): own, other.Object(): other})
	tables.Clones.Load(map[Key]*Snapshot{c.Object(): c})
	found := map[*Snapshot]bool{}
	for _, row := range tables.Rows() {
		found[row] = true
	}
	if len(found) != 4 || found[own] {
		t.Errorf("%v", found)
	}
	for _, row := range []*Snapshot{s, r, c, own, other} {
		if got := tables.Get(row.Key()); got != row {
			t.Errorf("%s is %+v", row.Key(), got)
		}
	}
	if r.Source() != s.Key() {
		t.Errorf("%s is of %s", r.Name, r.Source())
	}
}
