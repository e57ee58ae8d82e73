package app

import (
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
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

// TestMigrationThatIsMadeAnew: a migration that virt-controller would make anew is not cancelled where that would only
// lose what was copied, with the command that helps; else the question says so.
func TestMigrationThatIsMadeAnew(t *testing.T) {
	t.Parallel()
	const refused = "Its disks are being copied to other claims, which only `virtctl volume migrate web --cancel " +
		"--namespace prod` cancels: virt-controller would make the migration anew"
	const question = "Cancel the migration of prod/web?"
	annotated := func(key, value string) v1.VirtualMachineInstanceMigration {
		return v1.VirtualMachineInstanceMigration{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key: value}},
		}
	}
	plain, update := v1.VirtualMachineInstanceMigration{}, annotated(v1.WorkloadUpdateMigrationAnnotation, "")
	withDisks := annotated(volumemigration.WithDisksAnnotation, "true")
	copying := func(vmi *v1.VirtualMachineInstance) {
		vmi.Spec.Volumes = []v1.Volume{*volumemigration.OnClaim("data", "new")}
		vmi.Status.VolumeStatus = []v1.VolumeStatus{{
			Name: "data", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "old"},
		}}
	}
	outdated := func(vmi *v1.VirtualMachineInstance) {
		vmi.Labels = map[string]string{v1.OutdatedLauncherImageLabel: ""}
	}
	leaving := func(vmi *v1.VirtualMachineInstance) { vmi.Status.EvacuationNodeName = "a" }
	for name, c := range map[string]struct {
		change func(*v1.VirtualMachineInstance)
		move   v1.VirtualMachineInstanceMigration
		want   string
		done   bool
	}{
		"volume migrate": {copying, update, refused, false},
		"with disks":     {copying, withDisks, question, true},
		"an evacuation": {
			leaving, plain, question + " virt-controller will migrate it again: it is to leave node a, which " +
				"evacuate-cancel takes back.", true,
		},
		"an update": {
			outdated, update, question + " virt-controller will migrate it again: it runs an outdated launcher.", true,
		},
		"a user's, of an outdated guest": {outdated, plain, question, true},
	} {
		f := &fake{}
		w := world(f)
		vm := v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web", UID: "vm"}}
		vmi := v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
			Namespace: "prod", Name: "web",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&vm, v1.VirtualMachineGroupVersionKind)},
		}}
		vmi.Status.Phase = v1.Running
		c.change(&vmi)
		w.Machines.Load([]v1.VirtualMachine{vm}, []v1.VirtualMachineInstance{vmi})
		c.move.Namespace, c.move.Name, c.move.UID, c.move.Spec.VMIName = "prod", "m", "meant", "web"
		c.move.Status.Phase = v1.MigrationRunning
		move := store.OfMigration(&c.move)
		w.Migrations.Load(map[store.Key]*store.Migration{move.Key(): move})
		a := New(w)
		t.Cleanup(a.Close)
		drive(t, a, sizes[2])
		press(t, a, "3", "M")
		screen := strings.Join(strings.Fields(ansi.Strip(a.screen())), " ")
		if !strings.Contains(screen, c.want) || !c.done && strings.Contains(screen, question) ||
			c.want == question && strings.Contains(screen, "again:") {
			t.Errorf("%s: %q is not said:\n%s", name, c.want, screen)
		}
		other := *move // which has begun since
		other.UID = "other"
		w.Migrations.Load(map[store.Key]*store.Migration{other.Key(): &other})
		press(t, a, "y")
		if done := slices.Equal(f.done, []string{"migrate-cancel prod/web of migration meant"}); done != c.done {
			t.Errorf("%s: done %v", name, f.done)
		}
	}
}
