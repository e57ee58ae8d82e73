package launcher

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
)

// A guest that gets there soon stands still for as short as can be; one that does not is given more time, at most
// QEMU's own default.
func TestDowntimeRaise(t *testing.T) {
	const ms = time.Millisecond
	d := downtime{limit: firstDowntime}
	for i, step := range []struct {
		passes uint64
		want   time.Duration
	}{
		{0, 10 * ms}, // disks are copied
		{1, 10 * ms}, // memory is copied for the first time
		{2, 50 * ms}, // what it has changed meanwhile
		{2, 50 * ms}, // still: that pass is long
		{5, 100 * ms},
		{6, 200 * ms},
		{7, 300 * ms},
		{8, 300 * ms},
	} {
		before := d.limit
		if raised := d.raise(hypervisor.Progress{Iteration: step.passes}); raised != (d.limit != before) {
			t.Errorf("step %d: raised %t, from %s to %s", i, raised, before, d.limit)
		}
		if d.limit != step.want {
			t.Errorf("step %d: after %d passes %s, want %s", i, step.passes, d.limit, step.want)
		}
	}
}

// The limit that a migration begins with is libvirt's before it begins, and grows while the guest changes its memory
// faster than it is copied.
func TestDowntimeOfMigration(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		ends := migrating(m)
		var passes uint64
		m.progress = func() *hypervisor.Progress {
			passes++
			return &hypervisor.Progress{DataTotal: 1 << 20, DataProcessed: passes, Iteration: passes}
		}
		mustCreate(t, g)
		mustLeave(t, g, "a")
		time.Sleep(20 * lookEvery) // of the bubble
		synctest.Wait()
		m.mu.Lock()
		got := slices.Clone(m.downtimes)
		m.mu.Unlock()
		want := []time.Duration{nextDowntime, 2 * nextDowntime, 4 * nextDowntime, lastDowntime}
		if !slices.Equal(got, want) {
			t.Errorf("limits %v, want %v", got, want)
		}
		ends <- outcome{}
		expect(t, g, migrated, "migrated")
	})
}
