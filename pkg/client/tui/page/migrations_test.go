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

// TestMoves: of several migrations of a machine that have not ended the newest one counts that is not being cancelled.
func TestMoves(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	for want, list := range map[string][]*store.Migration{
		"new":   {{Name: "new", Created: at(2)}, {Name: "old", Created: at(1)}},
		"going": {{Name: "cancelled", Created: at(2), Deleting: true}, {Name: "going", Created: at(1)}},
		"a":     {{Name: "a", Created: at(1)}, {Name: "b", Created: at(1)}},
	} {
		rows := map[store.Key]*store.Migration{}
		for _, m := range list {
			m.Phase, m.Machine = v1.MigrationRunning, "web"
			rows[m.Key()] = m
		}
		w := &World{Migrations: store.NewTable[store.Migration](func() {})}
		w.Migrations.Load(rows)
		for range 10 { // rows come in no order
			if got := w.moves()[store.Key{Name: "web"}]; got == nil || got.Name != want {
				t.Fatalf("%+v, not %s", got, want)
			}
		}
	}
}
