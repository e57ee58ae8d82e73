package workloadupdatecontroller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const current, before = "launcher:2", "launcher:1"

// guest runs an older launcher and can move; older ones have larger ages.
func guest(name string, age time.Duration, change ...func(*v1.VirtualMachineInstance)) *v1.VirtualMachineInstance {
	instance := &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(now.Add(-age)),
			Labels: map[string]string{v1.OutdatedLauncherImageLabel: ""},
		},
		Status: v1.VirtualMachineInstanceStatus{
			Phase: v1.Running, LauncherContainerImageVersion: before,
			Conditions: []v1.VirtualMachineInstanceCondition{
				{Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue},
			},
		},
	}
	for _, change := range change {
		change(instance)
	}
	return instance
}

func stuck(instance *v1.VirtualMachineInstance) {
	instance.Status.Conditions[0].Status = corev1.ConditionFalse
}
func unmarked(instance *v1.VirtualMachineInstance) { instance.Labels = nil }
func upToDate(instance *v1.VirtualMachineInstance) {
	instance.Status.LauncherContainerImageVersion = current
}

// mustMoveNow is a guest with a new interface, in the launcher of now.
func mustMoveNow(instance *v1.VirtualMachineInstance) {
	upToDate(instance)
	unmarked(instance)
	instance.Status.Conditions = append(instance.Status.Conditions, v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceMigrationRequired, Status: corev1.ConditionTrue,
	})
}

func deleted(instance *v1.VirtualMachineInstance) {
	instance.DeletionTimestamp = &metav1.Time{Time: now}
}

func in(phase v1.VirtualMachineInstancePhase) func(*v1.VirtualMachineInstance) {
	return func(instance *v1.VirtualMachineInstance) { instance.Status.Phase = phase }
}

func moving(instance *v1.VirtualMachineInstance) {
	instance.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{}
}

// job is a migration in a phase, that began it so long ago; ours if made here.
func job(of, name string, phase v1.VirtualMachineInstanceMigrationPhase, ago time.Duration, ours bool,
) *v1.VirtualMachineInstanceMigration {
	m := &v1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
		},
		Spec: v1.VirtualMachineInstanceMigrationSpec{VMIName: of},
		Status: v1.VirtualMachineInstanceMigrationStatus{
			Phase: phase,
			PhaseTransitionTimestamps: []v1.VirtualMachineInstanceMigrationPhaseTransitionTimestamp{
				{Phase: phase, PhaseTransitionTimestamp: metav1.NewTime(now.Add(-ago))},
			},
		},
	}
	if ours {
		m.Annotations = map[string]string{v1.WorkloadUpdateMigrationAnnotation: ""}
	}
	return m
}

func TestNext(t *testing.T) {
	type guests = []*v1.VirtualMachineInstance
	type jobs = []*v1.VirtualMachineInstanceMigration
	const move, evict = v1.WorkloadUpdateMethodLiveMigrate, v1.WorkloadUpdateMethodEvict
	both := []v1.WorkloadUpdateMethod{move, evict}
	two := func(s *v1.KubeVirtWorkloadUpdateStrategy) {
		n := 2
		s.BatchEvictionSize, s.BatchEvictionInterval = &n, &metav1.Duration{Duration: 10 * time.Second}
	}
	for name, test := range map[string]struct {
		vmis      guests
		jobs      jobs
		methods   []v1.WorkloadUpdateMethod
		strategy  func(*v1.KubeVirtWorkloadUpdateStrategy)
		unsettled bool
		lastBatch time.Duration // ago
		tried     map[types.UID]time.Time

		outdated                     int
		mark, unmark, migrate, evict string
		again                        time.Duration
	}{
		"nobody":            {methods: both},
		"up to date":        {vmis: guests{guest("a", 1, upToDate, unmarked)}, methods: both},
		"up to date by now": {vmis: guests{guest("a", 1, upToDate)}, methods: both, unmark: "a"},
		"outdated":          {vmis: guests{guest("a", 1, unmarked)}, outdated: 1, mark: "a"},
		"no launcher known": {
			vmis: guests{
				guest("a", 1, unmarked, func(i *v1.VirtualMachineInstance) {
					i.Status.LauncherContainerImageVersion = ""
				}),
			},
			methods: both,
		},
		"not begun":       {vmis: guests{guest("a", 1, unmarked, in(v1.Scheduling))}, methods: both},
		"over":            {vmis: guests{guest("a", 1, unmarked, in(v1.Failed))}, methods: both},
		"on its way out":  {vmis: guests{guest("a", 1, deleted)}, methods: both},
		"not running yet": {vmis: guests{guest("a", 1, in(v1.Scheduled))}, methods: both, outdated: 1},
		"moves":           {vmis: guests{guest("a", 1)}, methods: both, outdated: 1, migrate: "a"},
		"moves, or nothing": {
			vmis: guests{guest("a", 1), guest("b", 2, stuck)}, methods: []v1.WorkloadUpdateMethod{move}, outdated: 2,
			migrate: "a",
		},
		"is evicted": {
			vmis: guests{guest("a", 1), guest("b", 2, stuck)}, methods: []v1.WorkloadUpdateMethod{evict}, outdated: 2,
			evict: "b a", again: time.Minute,
		},
		"each its way": {
			vmis: guests{guest("a", 1), guest("b", 2, stuck)}, methods: both, outdated: 2, migrate: "a", evict: "b",
			again: time.Minute,
		},
		"during the roll-out": {
			vmis: guests{guest("a", 1, unmarked), guest("b", 2, stuck)}, methods: both, unsettled: true, outdated: 2,
			mark: "a",
		},
		"moves already": {
			vmis: guests{guest("a", 1)}, jobs: jobs{job("a", "m", v1.MigrationRunning, 0, false)}, methods: both,
			outdated: 1,
		},
		"is about to": {
			vmis: guests{guest("a", 1)}, jobs: jobs{job("a", "m", "", 0, true)}, methods: both, outdated: 1,
		},
		"moves, says the VMI":  {vmis: guests{guest("a", 1, moving)}, methods: both, outdated: 1},
		"moves, and could not": {vmis: guests{guest("a", 1, stuck, moving)}, methods: both, outdated: 1},
		"the oldest first": {
			vmis: guests{guest("a", 1), guest("b", 3), guest("c", 2), guest("d", 4)}, methods: both, outdated: 4,
			migrate: "d b c",
		},
		"others move": {
			vmis: guests{guest("a", 1), guest("b", 2)},
			jobs: jobs{
				job("x", "m", v1.MigrationRunning, 0, false), job("y", "n", v1.MigrationScheduling, 0, false),
			},
			methods: both, outdated: 2, migrate: "b",
		},
		"others wait": {
			vmis: guests{guest("a", 1)},
			jobs: jobs{
				job("x", "m", v1.MigrationPending, 0, false), job("y", "n", "", 0, false), job("z", "o", "", 0, false),
			},
			methods: both, outdated: 1, migrate: "a",
		},
		"ours wait": {
			vmis: guests{guest("a", 1)},
			jobs: jobs{
				job("x", "m", v1.MigrationPending, 0, true), job("y", "n", "", 0, true), job("z", "o", "", 0, true),
			},
			methods: both, outdated: 1,
		},
		"more than may": {
			vmis: guests{guest("a", 1)},
			jobs: jobs{
				job("w", "l", v1.MigrationRunning, 0, true), job("x", "m", v1.MigrationRunning, 0, true),
				job("y", "n", v1.MigrationRunning, 0, true), job("z", "o", v1.MigrationRunning, 0, true),
			},
			methods: both, outdated: 1,
		},
		"failed a moment ago": {
			vmis: guests{guest("a", 1)}, jobs: jobs{job("a", "m", v1.MigrationFailed, 5*time.Second, true)},
			methods: both, outdated: 1, again: 15 * time.Second,
		},
		"failed three times": {
			vmis: guests{guest("a", 1)},
			jobs: jobs{
				job("a", "l", v1.MigrationFailed, 5*time.Minute, true),
				job("a", "m", v1.MigrationFailed, time.Minute, true),
				job("a", "n", v1.MigrationFailed, 30*time.Second, true),
			},
			methods: both, outdated: 1, again: 50 * time.Second,
		},
		"failed a while ago": {
			vmis: guests{guest("a", 1)}, jobs: jobs{job("a", "m", v1.MigrationFailed, time.Minute, true)},
			methods: both, outdated: 1, migrate: "a",
		},
		"failed three times, for the launcher before": {
			vmis: guests{guest("a", 1)},
			jobs: jobs{
				job("a", "j", v1.MigrationFailed, 50*time.Minute, true),
				job("a", "k", v1.MigrationFailed, 45*time.Minute, true),
				job("a", "l", v1.MigrationFailed, 40*time.Minute, true),
				job("a", "m", v1.MigrationSucceeded, 35*time.Minute, true),
				job("a", "n", v1.MigrationFailed, 30*time.Second, true),
			},
			methods: both, outdated: 1, migrate: "a",
		},
		"failed, but not ours": {
			vmis: guests{guest("a", 1)}, jobs: jobs{job("a", "m", v1.MigrationFailed, time.Second, false)},
			methods: both, outdated: 1, migrate: "a",
		},
		"a batch": {
			vmis: guests{guest("a", 1, stuck), guest("b", 2, stuck), guest("c", 3, stuck)}, methods: both,
			strategy: two, outdated: 3, evict: "c b", again: 10 * time.Second,
		},
		"a batch a moment ago": {
			vmis: guests{guest("a", 1, stuck)}, methods: both, strategy: two, lastBatch: 4 * time.Second, outdated: 1,
			again: 6 * time.Second,
		},
		"those not tried yet": {
			vmis: guests{guest("a", 1, stuck), guest("b", 2, stuck), guest("c", 3, stuck)}, methods: both,
			strategy: two, tried: map[types.UID]time.Time{"c": now.Add(-time.Minute), "b": now.Add(-time.Hour)},
			outdated: 3, evict: "a b", again: 10 * time.Second,
		},
		"must move":             {vmis: guests{guest("a", 1, mustMoveNow)}, methods: both, migrate: "a"},
		"must move, may not":    {vmis: guests{guest("a", 1, mustMoveNow)}, methods: []v1.WorkloadUpdateMethod{evict}},
		"must move, and cannot": {vmis: guests{guest("a", 1, mustMoveNow, stuck)}, methods: both},
		"must move, ends":       {vmis: guests{guest("a", 1, mustMoveNow, deleted)}, methods: both},
		"a batch, and one to move": {
			vmis: guests{guest("a", 1, stuck), guest("b", 2)}, methods: both, lastBatch: time.Second, outdated: 2,
			migrate: "b", again: 59 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			view := View{
				Strategy: v1.KubeVirtWorkloadUpdateStrategy{WorkloadUpdateMethods: test.methods},
				Settled:  !test.unsettled, Image: current, Limit: 3,
				VMIs: test.vmis, Migrations: test.jobs, Tried: test.tried, Now: now,
			}
			if test.strategy != nil {
				test.strategy(&view.Strategy)
			}
			if test.lastBatch > 0 {
				view.LastBatch = now.Add(-test.lastBatch)
			}
			step := Next(view)
			var moved guests
			for _, move := range step.Migrate {
				moved = append(moved, move.VMI)
				if !strings.HasPrefix(move.Name, "kubevirt-workload-update-") {
					t.Errorf("migration %s", move.Name)
				}
			}
			for what, pair := range map[string][2]string{
				"marked": {namesOf(step.Mark), test.mark}, "unmarked": {namesOf(step.Unmark), test.unmark},
				"moved": {namesOf(moved), test.migrate}, "evicted": {namesOf(step.Evict), test.evict},
			} {
				if pair[0] != pair[1] {
					t.Errorf("%s: %q, want %q", what, pair[0], pair[1])
				}
			}
			if step.Outdated != test.outdated || step.RequeueAfter != test.again {
				t.Errorf("%d outdated, again in %s; want %d, %s", step.Outdated, step.RequeueAfter, test.outdated,
					test.again)
			}
		})
	}
}

func namesOf(vmis []*v1.VirtualMachineInstance) string {
	var out []string
	for _, instance := range vmis {
		out = append(out, instance.Name)
	}
	return strings.Join(out, " ")
}

// A migration that the cache has not seen yet is not made twice; one that is over does not keep the next from being
// made.
func TestMigrationNames(t *testing.T) {
	instance := guest("a", 1)
	first := past{}.next(instance, current)
	if again := (past{}).next(instance, current); again != first {
		t.Errorf("%s and %s for one migration", first, again)
	}
	second := past{names: []string{first}}.next(instance, current)
	third := past{names: []string{first, second}}.next(instance, current)
	if second == first || third == second || third == first {
		t.Errorf("names %s, %s, %s", first, second, third)
	}
	// The first was deleted by hand.
	if got := (past{names: []string{second}}).next(instance, current); got == second {
		t.Errorf("%s is taken", got)
	}
	if other := (past{}).next(guest("b", 1), current); other == first {
		t.Errorf("two guests have %s", other)
	}
}
