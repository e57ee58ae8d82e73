package list

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

type migrations struct {
	items []v1.VirtualMachineInstanceMigration
	err   error
	asked int
}

func (m *migrations) MigrationList(context.Context, string, metav1.ListOptions,
) (*v1.VirtualMachineInstanceMigrationList, error) {
	m.asked++
	return &v1.VirtualMachineInstanceMigrationList{Items: m.items}, m.err
}

func TestProgress(t *testing.T) {
	migration := func(vmi, progress string, phase v1.VirtualMachineInstanceMigrationPhase,
	) v1.VirtualMachineInstanceMigration {
		return v1.VirtualMachineInstanceMigration{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: vmi, Annotations: map[string]string{names.AnnotationProgress: progress},
			},
			Spec:   v1.VirtualMachineInstanceMigrationSpec{VMIName: vmi},
			Status: v1.VirtualMachineInstanceMigrationStatus{Phase: phase},
		}
	}
	api := &migrations{items: []v1.VirtualMachineInstanceMigration{
		migration("moves", `{"mode":"PreCopy","totalBytes":100,"remainingBytes":37}`, v1.MigrationRunning),
		migration("moves", `{"mode":"PreCopy","done":true}`, v1.MigrationSucceeded), // one from before
		migration("rests", `{"mode":"PreCopy","done":true}`, v1.MigrationSucceeded),
		migration("begins", "", v1.MigrationScheduling),
		migration("odd", "what?", v1.MigrationRunning),
	}}
	rows := func() []Row {
		return []Row{
			{Namespace: "ns", Name: "moves", Status: "Migrating"},
			{Namespace: "ns", Name: "rests", Status: "Running"},
			{Namespace: "ns", Name: "begins", Status: "Migrating"},
			{Namespace: "ns", Name: "odd", Status: "Migrating"},
			{Namespace: "other", Name: "moves", Status: "Migrating"},
		}
	}
	got := rows()
	Progress(t.Context(), api, "ns", got)
	for i, want := range []string{"63%", "<none>", "<none>", "<none>", "<none>"} {
		cells := got[i].Cells(born, false, true)
		if far := cells[len(cells)-1]; far != want {
			t.Errorf("%s: %s, want %s", got[i].Name, far, want)
		}
		if cells[1] != got[i].Status {
			t.Errorf("%s: its status is %s and is shown as %s", got[i].Name, got[i].Status, cells[1])
		}
	}
	api.asked = 0
	if Progress(t.Context(), api, "ns", got[1:2]); api.asked != 0 {
		t.Error("migrations are asked for although nobody moves")
	}
	api.err = errors.New("forbidden")
	got = rows()
	if Progress(t.Context(), api, "ns", got); got[0].Progress != "" {
		t.Errorf("without migrations: %+v", got[0])
	}
}
