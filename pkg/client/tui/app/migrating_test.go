package app

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/store"
)

// TestMigrationThatWaits cancels a migration of every phase that is not final on each page that has the key: only the
// VMI of one that runs says that it migrates.
func TestMigrationThatWaits(t *testing.T) {
	t.Parallel()
	const question = "Cancel the migration of prod/web?"
	for _, phase := range []v1.VirtualMachineInstanceMigrationPhase{
		v1.MigrationPending, v1.MigrationScheduling, v1.MigrationScheduled, v1.MigrationPreparingTarget,
		v1.MigrationTargetReady, v1.MigrationRunning,
	} {
		for where, keys := range map[string][]string{
			"VMs": {"j"}, "details": {"j", "enter"}, "migrations": {"3"},
		} {
			f := &fake{}
			w := world(f)
			move := &store.Migration{Namespace: "prod", Name: "m", Machine: "web", Phase: phase, Created: now}
			w.Migrations.Load(map[store.Key]*store.Migration{move.Key(): move})
			a := New(w)
			t.Cleanup(a.Close)
			drive(t, a, sizes[2])
			press(t, a, keys...)
			if where != "migrations" {
				flag := "migration " + strings.ToLower(string(phase))
				if phase == v1.MigrationRunning {
					flag = "migrating"
				}
				if screen := ansi.Strip(a.screen()); !strings.Contains(screen, flag) {
					t.Errorf("%s, %s: %q is not shown:\n%s", where, phase, flag, screen)
				}
				press(t, a, "m")
				says := "A migration of it has begun, and is " + string(phase) + "; M cancels it"
				if screen := ansi.Strip(a.screen()); !strings.Contains(screen, says) {
					t.Errorf("%s, %s: %q is not said:\n%s", where, phase, says, screen)
				}
			}
			press(t, a, "M")
			if !strings.Contains(ansi.Strip(a.screen()), question) {
				t.Errorf("%s, %s: nothing is asked:\n%s", where, phase, a.screen())
			}
			press(t, a, "y")
			if done := strings.Join(f.done, ", "); !strings.Contains(done, "migrate-cancel") {
				t.Errorf("%s, %s: %q was done", where, phase, done)
			}
		}
	}
}

// TestMigrationThatIsCancelled is not cancelled twice, and one of a machine without a row says so.
func TestMigrationThatIsCancelled(t *testing.T) {
	t.Parallel()
	for want, move := range map[string]*store.Migration{
		"It is being cancelled": {
			Namespace: "prod", Name: "m", Machine: "web", Phase: v1.MigrationScheduling, Deleting: true,
		},
		"Its machine is not among those that are shown": {
			Namespace: "prod", Name: "m", Machine: "gone", Phase: v1.MigrationScheduling,
		},
		"It is not running": {Namespace: "test", Name: "m", Machine: "off", Phase: v1.MigrationPending},
		"It has ended":      {Namespace: "prod", Name: "m", Machine: "web", Phase: v1.MigrationFailed},
	} {
		w := world(&fake{})
		w.Migrations.Load(map[store.Key]*store.Migration{move.Key(): move})
		a := New(w)
		t.Cleanup(a.Close)
		drive(t, a, sizes[2])
		press(t, a, "3", "M")
		if !strings.Contains(ansi.Strip(a.screen()), want) {
			t.Errorf("%q is not said:\n%s", want, a.screen())
		}
	}
}
