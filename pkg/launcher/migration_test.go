package launcher

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

const (
	migrated  = pb.Lifecycle_LIFECYCLE_MIGRATED
	underWay  = pb.MigrationPhase_MIGRATION_PHASE_RUNNING
	didFail   = pb.MigrationPhase_MIGRATION_PHASE_FAILED
	completed = pb.MigrationPhase_MIGRATION_PHASE_COMPLETED
)

// outcome is how a migration of the hypervisor in memory ends.
type outcome struct {
	result hypervisor.Migrated
	err    error
}

// migrating makes the hypervisor's migrations wait for an outcome.
func migrating(m *memory) chan<- outcome {
	ends := make(chan outcome)
	m.onMigrate = func(hypervisor.Migration) (hypervisor.Migrated, error) {
		end := <-ends
		return end.result, end.err
	}
	m.onAbort = func() error {
		go func() { ends <- outcome{err: errors.New("operation aborted")} }()
		return nil
	}
	return ends
}

func mustLeave(t *testing.T, g *guest, uid string) {
	t.Helper()
	if err := g.migrate(move{uid: uid, to: hypervisor.Migration{Peer: "p"}}); err != nil {
		t.Fatal(err)
	}
	expectMigration(t, g, uid, underWay)
}

func expectMigration(t *testing.T, g *guest, uid string, phase pb.MigrationPhase) *pb.Migration {
	t.Helper()
	synctest.Wait()
	m := g.snapshot().Migration
	if m.GetUid() != uid || m.GetPhase() != phase {
		t.Fatalf("migration %v, want %s of %s", m, phase, uid)
	}
	return m
}

func TestLeave(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		ends := migrating(m)
		if err := g.migrate(move{uid: "a"}); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("before the guest runs: %v", err)
		}
		mustCreate(t, g)
		mustLeave(t, g, "a")
		mustLeave(t, g, "a") // again: the same
		if err := g.migrate(move{uid: "b"}); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("a second one: %v", err)
		}
		// While the other side takes over, the vCPUs stand still; that is not a pause.
		m.change(func(d *hypervisor.Domain) { d.Run, d.Reason = hypervisor.Paused, "migration" })
		expect(t, g, runs, "migration")
		ends <- outcome{result: hypervisor.Migrated{Downtime: 150 * time.Millisecond}}
		expect(t, g, migrated, "migrated")
		if d := expectMigration(t, g, "a", completed).Downtime.AsDuration(); d != 150*time.Millisecond {
			t.Errorf("downtime %v", d)
		}
	})
}

func TestLeaveFails(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		ends := migrating(m)
		mustCreate(t, g)
		mustLeave(t, g, "a")
		ends <- outcome{err: errors.New("no route")}
		if got := expectMigration(t, g, "a", didFail); got.Error != "no route" || got.Cancelled {
			t.Errorf("migration %v", got)
		}
		expect(t, g, runs, "booted")
		// The next one may succeed.
		mustLeave(t, g, "b")
		ends <- outcome{}
		expect(t, g, migrated, "migrated")
		expectMigration(t, g, "b", completed)
	})
}

func TestLeaveCancelled(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		migrating(m)
		mustCreate(t, g)
		mustLeave(t, g, "a")
		if err := g.cancelMigration(t.Context(), "other"); err != nil {
			t.Fatal(err)
		}
		expectMigration(t, g, "a", underWay)
		if err := g.cancelMigration(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if got := expectMigration(t, g, "a", didFail); !got.Cancelled {
			t.Errorf("migration %v", got)
		}
		expect(t, g, runs, "booted")
	})
}

// A cancel that comes before libvirt has begun is not lost.
func TestLeaveCancelledEarly(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		ends, tries := migrating(m), 0
		m.onAbort = func() error {
			if tries++; tries < 3 {
				return errors.New("no job is active on the domain")
			}
			go func() { ends <- outcome{err: errors.New("operation aborted")} }()
			return nil
		}
		mustCreate(t, g)
		mustLeave(t, g, "a")
		if err := g.cancelMigration(t.Context(), "a"); err == nil {
			t.Error("there was nothing to cancel yet")
		}
		time.Sleep(time.Second) // of the bubble
		if got := expectMigration(t, g, "a", didFail); !got.Cancelled || tries != 3 {
			t.Errorf("migration %v after %d tries", got, tries)
		}
		expect(t, g, runs, "booted")
	})
}

// One that comes before libvirt has been told to begin keeps it from that.
func TestLeaveCancelledBefore(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		m.onMigrate = func(hypervisor.Migration) (hypervisor.Migrated, error) {
			t.Error("libvirt was told to begin")
			return hypervisor.Migrated{}, nil
		}
		m.onAbort = func() error { return errors.New("no job is active on the domain") }
		call := g.call
		g.call = func(ctx context.Context, path string) (net.Conn, error) {
			if err := g.cancelMigration(ctx, "a"); err == nil {
				t.Error("there was nothing to cancel yet")
			}
			return call(ctx, path)
		}
		mustCreate(t, g)
		if err := g.migrate(move{uid: "a"}); err != nil {
			t.Fatal(err)
		}
		if got := expectMigration(t, g, "a", didFail); !got.Cancelled || got.Error != "cancelled before it began" {
			t.Errorf("migration %v", got)
		}
		expect(t, g, runs, "booted")
	})
}

// The guest ends by itself on the way.
func TestGuestEndsWhileLeaving(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		ends := migrating(m)
		mustCreate(t, g)
		mustLeave(t, g, "a")
		m.end(hypervisor.End{Outcome: hypervisor.Shutdown, Reason: "shutdown"})
		expect(t, g, runs, "booted") // not before the migration is known to have failed
		ends <- outcome{err: errors.New("domain is not running")}
		expect(t, g, shutOff, "shutdown")
		expectMigration(t, g, "a", didFail)
	})
}

// A guest that is to end does not go on its way.
func TestShutdownWhileLeaving(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		migrating(m)
		mustCreate(t, g)
		mustLeave(t, g, "a")
		g.shutdown(10 * time.Second)
		time.Sleep(time.Second) // of the bubble
		expectMigration(t, g, "a", didFail)
		expect(t, g, shutOff, "shutdown")
	})
}

// libvirtd dies and with it its answer; what became of the guest is in its log, or the guest is still there.
func TestDaemonDiesWhileLeaving(t *testing.T) {
	for name, tc := range map[string]struct {
		log   string
		stays bool
		want  pb.Lifecycle
		phase pb.MigrationPhase
	}{
		"moved": {
			"x: starting up libvirt version: 1\nx: shutting down, reason=migrated\n", false, migrated, completed,
		},
		"lost":   {"x: starting up libvirt version: 1\n", false, crashed, didFail},
		"stayed": {"x: starting up libvirt version: 1\n", true, runs, didFail},
	} {
		t.Run(name, func(t *testing.T) {
			withGuest(t, func(t *testing.T, m *memory, g *guest) {
				ends := migrating(m)
				mustCreate(t, g)
				if err := os.WriteFile(g.qemuLog, []byte(tc.log), 0o600); err != nil {
					t.Fatal(err)
				}
				mustLeave(t, g, "a")
				m.crash()
				if !tc.stays {
					m.mu.Lock()
					m.domain = nil
					m.mu.Unlock()
				}
				ends <- outcome{err: errLost}
				expectMigration(t, g, "a", underWay)
				m.restart()
				time.Sleep(time.Second) // of the bubble
				synctest.Wait()
				if s := g.snapshot(); s.Lifecycle != tc.want {
					t.Errorf("state %v", s)
				}
				expectMigration(t, g, "a", tc.phase)
			})
		})
	}
}

func TestIncoming(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		g.expect(map[string]string{"a": "vda"}, nil)
		// It comes, but does not run here before the other side has let it go.
		m.mu.Lock()
		m.domain = &hypervisor.Domain{Run: hypervisor.Paused, Reason: "migration"}
		m.notify(hypervisor.Event{})
		m.mu.Unlock()
		expect(t, g, none, "")
		m.change(func(d *hypervisor.Domain) { d.Run, d.Reason = hypervisor.Running, "migrated" })
		expect(t, g, runs, "migrated")
		if g.snapshot().VolumeTargets["a"] != "vda" {
			t.Errorf("state %v", g.snapshot())
		}
	})
}

// A guest that does not arrive after all leaves the launcher as it was.
func TestIncomingFails(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		g.expect(nil, nil)
		m.mu.Lock()
		m.domain = &hypervisor.Domain{Run: hypervisor.Paused, Reason: "migration"}
		m.notify(hypervisor.Event{})
		m.mu.Unlock()
		synctest.Wait()
		m.end(hypervisor.End{Outcome: hypervisor.Crashed, Reason: "failed"})
		expect(t, g, none, "")
		g.shutdown(0)
		expect(t, g, shutOff, "not started")
	})
}

// libvirt ends the QEMU of a guest that does not come after all, which looks like a guest that shuts down. It never was
// here.
func TestIncomingTakenBack(t *testing.T) {
	for name, was := range map[string]hypervisor.Domain{
		"still coming": {Run: hypervisor.Paused, Reason: "migration"},
		"arrived":      here,
	} {
		t.Run(name, func(t *testing.T) {
			withGuest(t, func(t *testing.T, m *memory, g *guest) {
				expectGuest(t, m, g, was)
				m.change(func(d *hypervisor.Domain) { d.Run, d.Reason = hypervisor.Stopping, "shutdown" })
				expect(t, g, none, "")
				m.end(hypervisor.End{Outcome: hypervisor.Crashed, Reason: "failed"})
				expect(t, g, none, "")
				g.shutdown(0)
				expect(t, g, shutOff, "not started")
			})
		})
	}
}

// A launcher that waits for a guest never starts one.
func TestTargetDoesNotStart(t *testing.T) {
	withGuest(t, func(t *testing.T, _ *memory, g *guest) {
		s := newService(t.Context(), Options{Namespace: "ns", Name: "vm", MigrationTarget: true, Log: g.log}, g, nil)
		_, err := s.Start(context.Background(),
			&pb.StartRequest{VmiJson: []byte(`{"metadata":{"namespace":"ns","name":"vm"}}`)})
		if status.Code(err) != codes.FailedPrecondition {
			t.Errorf("start: %v", err)
		}
		expect(t, g, none, "")
	})
}
