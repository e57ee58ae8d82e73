package migrationcontroller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestUpdateWait(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tc := range map[string]struct {
		failures int
		ago      time.Duration
		want     time.Duration
	}{
		"none failed":    {0, 0, 0},
		"one, just now":  {1, 0, 20 * time.Second},
		"one, it waited": {1, 20 * time.Second, 0},
		"one, long ago":  {1, time.Minute, -40 * time.Second},
		"three, a while": {3, time.Minute, 20 * time.Second},
		"many, just now": {50, 0, 5 * time.Minute},
		"many, long ago": {50, 6 * time.Minute, -time.Minute},
	} {
		if got := UpdateWait(tc.failures, now.Add(-tc.ago), now); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestFailures(t *testing.T) {
	made := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const failed, succeeded = v1.MigrationFailed, v1.MigrationSucceeded
	type list = []v1.VirtualMachineInstanceMigrationPhase
	for name, tc := range map[string]struct {
		// phases are of the guest's updates, each made a minute after the one before. "user's" is a migration of
		// another origin, which failed.
		phases list
		want   int
	}{
		"none":                  {nil, 0},
		"one":                   {list{failed}, 1},
		"three":                 {list{failed, failed, failed}, 3},
		"the last succeeded":    {list{failed, failed, succeeded}, 0},
		"one after that":        {list{failed, failed, succeeded, failed}, 1},
		"one is not over":       {list{failed, v1.MigrationRunning}, 0},
		"of another in between": {list{failed, "user's", failed, "user's"}, 2},
	} {
		var all []*v1.VirtualMachineInstanceMigration
		var last time.Time
		for n, phase := range tc.phases {
			at := metav1.NewTime(made.Add(time.Duration(n) * time.Minute))
			m := &v1.VirtualMachineInstanceMigration{}
			m.CreationTimestamp, m.Status.Phase = at, phase
			if phase == "user's" {
				m.Status.Phase = failed
			} else {
				m.Annotations = map[string]string{v1.WorkloadUpdateMigrationAnnotation: ""}
			}
			if phase == failed {
				last = at.Time
			}
			all = append([]*v1.VirtualMachineInstanceMigration{m}, all...) // The order of the list does not count.
		}
		if tc.want == 0 {
			last = time.Time{}
		}
		if count, at := Failures(all, IsUpdate); count != tc.want || !at.Equal(last) {
			t.Errorf("%s: %d, the last at %s; want %d, %s", name, count, at, tc.want, last)
		}
	}
}

func TestEnded(t *testing.T) {
	made := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(minutes ...int) *v1.VirtualMachineInstanceMigration {
		m := &v1.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(made)}}
		for _, n := range minutes {
			m.Status.PhaseTransitionTimestamps = append(m.Status.PhaseTransitionTimestamps,
				v1.VirtualMachineInstanceMigrationPhaseTransitionTimestamp{
					PhaseTransitionTimestamp: metav1.NewTime(made.Add(time.Duration(n) * time.Minute)),
				})
		}
		return m
	}
	for name, tc := range map[string]struct {
		m    *v1.VirtualMachineInstanceMigration
		want int
	}{
		"nothing noted": {at(), 0}, "in order": {at(1, 2, 3), 3}, "out of order": {at(1, 4, 3), 4},
	} {
		if got := Ended(tc.m); !got.Equal(made.Add(time.Duration(tc.want) * time.Minute)) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestUpdateName(t *testing.T) {
	a, b := UpdateName("u", "image", "0"), UpdateName("u", "image", "1")
	if a == b || a != UpdateName("u", "image", "0") || len(a) != len("kubevirt-workload-update-")+10 {
		t.Errorf("%q, %q", a, b)
	}
	m := &v1.VirtualMachineInstanceMigration{}
	if IsUpdate(m) {
		t.Error("a user's migration is taken for an update")
	}
	m.Annotations = map[string]string{v1.WorkloadUpdateMigrationAnnotation: ""}
	if !IsUpdate(m) {
		t.Error("an update is not known")
	}
}

// A guest has one migration at a time, the next has another name than those before, and after one that failed the guest
// is left alone for a while.
func TestNextUpdate(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	update := func(
		phase v1.VirtualMachineInstanceMigrationPhase, ago time.Duration,
	) *v1.VirtualMachineInstanceMigration {
		m := &v1.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{
			CreationTimestamp: metav1.NewTime(now.Add(-ago)),
			Annotations:       map[string]string{v1.WorkloadUpdateMigrationAnnotation: ""},
		}}
		m.Status.Phase = phase
		return m
	}
	first, _ := NextUpdate(nil, now, "uid", "cause")
	done := []*v1.VirtualMachineInstanceMigration{update(v1.MigrationSucceeded, time.Minute)}
	second, _ := NextUpdate(done, now, "uid", "cause")
	if first != UpdateName("uid", "cause", "0") || second != UpdateName("uid", "cause", "1") {
		t.Errorf("%q, then %q", first, second)
	}
	if name, left := NextUpdate(append(done, update(v1.MigrationRunning, 0)), now, "uid"); name != "" || left != 0 {
		t.Errorf("beside one that runs: %q, %s", name, left)
	}
	failed := append(done, update(v1.MigrationFailed, 0))
	if name, left := NextUpdate(failed, now, "uid"); name != "" || left != 20*time.Second {
		t.Errorf("after one that failed: %q, %s", name, left)
	}
	if name, left := NextUpdate(failed, now.Add(time.Minute), "uid"); name != UpdateName("uid", "2") || left != 0 {
		t.Errorf("a while after one that failed: %q, %s", name, left)
	}
}
