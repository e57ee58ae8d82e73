package launcher

import (
	"errors"
	"testing"
	"time"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

// keepSilent has libvirtd answer no question about the migration under way, until what it returns is called.
func keepSilent(m *memory) (speak func()) {
	silent := make(chan struct{})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.silent = silent
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.silent = nil
		close(silent)
	}
}

// QEMU may wait for a connection that only the end of the migration closes, and answer nobody: the migration ends when
// libvirt says so, though libvirt's account of it is still waited for.
func TestMigrationEndsThoughItsAccountDoesNotCome(t *testing.T) {
	withLeaving(t, func(t *testing.T, l *leaving) {
		speak := keepSilent(l.m)
		defer speak()
		l.standStill()
		time.Sleep(2 * lookEvery) // of the bubble
		l.m.mu.Lock()
		l.m.resumeErr = errors.New("cannot acquire state change lock")
		l.m.mu.Unlock()
		l.m.change(func(d *hypervisor.Domain) { d.Run, d.Reason = hypervisor.Paused, "api-error" })
		l.ends <- outcome{err: errors.New("client socket is closed")}
		time.Sleep(2 * lookPatience) // of the bubble
		expectMigration(t, l.guest, "a", didFail)
		// virt-handler has closed its connections, and QEMU answers.
		l.m.mu.Lock()
		l.m.resumeErr = nil
		l.m.mu.Unlock()
		time.Sleep(time.Second) // of the bubble
		expect(t, l.guest, runs, "unpaused")
	})
}

// While libvirtd says nothing of the migration no limit of it would end it. Its connections are cut, and then the guest
// stays.
func TestSilentMigrationIsCut(t *testing.T) {
	withLeaving(t, func(t *testing.T, l *leaving) {
		speak := keepSilent(l.m)
		time.Sleep(silencePatience - time.Second) // of the bubble
		if m := expectMigration(t, l.guest, "a", underWay); m.Cut {
			t.Error("cut too early")
		}
		time.Sleep(2 * time.Second) // of the bubble
		if m := expectMigration(t, l.guest, "a", underWay); !m.Cut {
			t.Error("not cut")
		}
		speak()
		l.ends <- outcome{err: errors.New("client socket is closed")}
		want := "libvirtd or QEMU on the source node did not answer for 30s"
		if m := expectMigration(t, l.guest, "a", didFail); m.Error != want {
			t.Errorf("it failed for %q", m.Error)
		}
		expect(t, l.guest, runs, "booted")
		mustLeave(t, l.guest, "b")
		if l.snapshot().Migration.Cut {
			t.Error("the next one is cut, too")
		}
		l.other.Close() // it does not ask
		l.ends <- outcome{}
		expect(t, l.guest, migrated, "migrated")
	})
}

// One by post-copy has no way back: to cut its connections would end the guest.
func TestSilentPostCopyIsNotCut(t *testing.T) {
	withLeaving(t, func(t *testing.T, l *leaving) {
		l.setMode(pb.MigrationMode_MIGRATION_MODE_POST_COPY)
		speak := keepSilent(l.m)
		time.Sleep(time.Hour) // of the bubble
		if m := expectMigration(t, l.guest, "a", underWay); m.Cut {
			t.Error("cut")
		}
		speak()
		l.other.Close() // it does not ask
		l.ends <- outcome{}
		expect(t, l.guest, migrated, "migrated")
	})
}
