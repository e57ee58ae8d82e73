package migrations

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

func migration(
	namespace, vmi, name string, phase v1.VirtualMachineInstanceMigrationPhase,
) v1.VirtualMachineInstanceMigration {
	return v1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1.VirtualMachineInstanceMigrationSpec{VMIName: vmi},
		Status:     v1.VirtualMachineInstanceMigrationStatus{Phase: phase},
	}
}

func TestCount(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm"},
		Status:     v1.VirtualMachineInstanceStatus{NodeName: "node1"},
	}
	nodes := map[types.NamespacedName]string{
		{Namespace: "ns", Name: "near"}: "node1", {Namespace: "ns", Name: "far"}: "node2",
		{Namespace: "other", Name: "vm"}: "node1", {Namespace: "ns", Name: "nowhere"}: "",
	}
	homeless := vmi.DeepCopy()
	homeless.Status.NodeName = ""
	one := Number{Cluster: 1}
	oneAway := Number{Cluster: 1, Away: 1}
	for name, tc := range map[string]struct {
		vmi       *v1.VirtualMachineInstance
		namespace string
		of        string
		phase     v1.VirtualMachineInstanceMigrationPhase
		want      Counts
	}{
		"runs":                     {vmi, "ns", "near", v1.MigrationRunning, Counts{nil, oneAway, oneAway}},
		"runs elsewhere":           {vmi, "ns", "far", v1.MigrationRunning, Counts{nil, one, one}},
		"has its first pod":        {vmi, "ns", "near", v1.MigrationScheduling, Counts{nil, oneAway, oneAway}},
		"waits":                    {vmi, "ns", "near", v1.MigrationPending, Counts{Unfinished: oneAway}},
		"was just made":            {vmi, "ns", "far", v1.MigrationPhaseUnset, Counts{Unfinished: one}},
		"has succeeded":            {vmi, "ns", "near", v1.MigrationSucceeded, Counts{}},
		"has failed":               {vmi, "ns", "near", v1.MigrationFailed, Counts{}},
		"its VMI is gone":          {vmi, "ns", "gone", v1.MigrationRunning, Counts{nil, one, one}},
		"the same name elsewhere":  {vmi, "other", "vm", v1.MigrationRunning, Counts{nil, oneAway, oneAway}},
		"neither has a node":       {homeless, "ns", "nowhere", v1.MigrationRunning, Counts{nil, oneAway, oneAway}},
		"one is gone, one nowhere": {homeless, "ns", "gone", v1.MigrationRunning, Counts{nil, one, one}},
	} {
		t.Run(name, func(t *testing.T) {
			all := []v1.VirtualMachineInstanceMigration{
				migration(tc.namespace, tc.of, "m", tc.phase), migration("ns", "vm", "own", v1.MigrationRunning),
				migration("ns", "vm", "old", v1.MigrationFailed),
			}
			tc.want.Own = []*v1.VirtualMachineInstanceMigration{&all[1], &all[2]}
			if diff := cmp.Diff(tc.want, Count(all, tc.vmi, nodes)); diff != "" {
				t.Error(diff)
			}
		})
	}
	two := []v1.VirtualMachineInstanceMigration{
		migration("ns", "near", "a", v1.MigrationRunning), migration("ns", "far", "b", v1.MigrationRunning),
		migration("ns", "near", "c", v1.MigrationPending),
	}
	if got := Count(two, vmi, nodes); got.Running != (Number{2, 1}) || got.Unfinished != (Number{3, 2}) {
		t.Errorf("of three: %+v", got)
	}
}

func TestByAge(t *testing.T) {
	at := func(name string, second int64, uid types.UID) *v1.VirtualMachineInstanceMigration {
		m := migration("ns", "vm", name, "")
		m.CreationTimestamp, m.UID = metav1.Time{Time: time.Unix(second, 0)}, uid
		return &m
	}
	sorted := []*v1.VirtualMachineInstanceMigration{at("z", 1, "9"), at("a", 2, "8"), at("b", 2, "7"), at("0", 3, "6")}
	got := slices.Clone(sorted)
	slices.Reverse(got)
	slices.SortFunc(got, ByAge)
	if diff := cmp.Diff(sorted, got); diff != "" {
		t.Error(diff)
	}
}
