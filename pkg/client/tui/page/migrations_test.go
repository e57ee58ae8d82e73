package page

import (
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/report/progress"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// TestTotal has moves that took no less than the copying in them, although their times are of whole seconds.
func TestTotal(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, m := range map[string]*store.Migration{
		"":     {},
		"7s":   {Started: began},
		"2s":   {Started: began, Ended: began.Add(2 * time.Second)},
		"3.2s": {Started: began, Ended: began.Add(2 * time.Second), Progress: &progress.Progress{ElapsedSeconds: 3.2}},
		"4s":   {Started: began, Ended: began.Add(4 * time.Second), Progress: &progress.Progress{ElapsedSeconds: 3.2}},
	} {
		if got := total(m, began.Add(7*time.Second)); got != want {
			t.Errorf("%+v took %q, not %q", m, got, want)
		}
	}
}

// A move that has copied disks names the claims that it has left behind, once it has succeeded.
func TestMovedHow(t *testing.T) {
	m := &v1.VirtualMachineInstanceMigration{}
	m.Annotations = map[string]string{volumemigration.CopiedAnnotation: `[{"volume":"root","from":"old","to":"new"},
		{"volume":"data","from":"more","to":"next"}]`}
	for phase, want := range map[v1.VirtualMachineInstanceMigrationPhase]string{
		v1.MigrationRunning: "", v1.MigrationFailed: "", v1.MigrationSucceeded: "left behind: claim old, more",
	} {
		m.Status.Phase = phase
		if got := movedHow(store.OfMigration(m)); got != want {
			t.Errorf("%s: %q", phase, got)
		}
	}
}
