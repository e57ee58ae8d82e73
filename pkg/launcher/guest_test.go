package launcher

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

// withGuest runs a test in a bubble of fake time with a guest on a hypervisor in memory.
func withGuest(t *testing.T, test func(t *testing.T, m *memory, g *guest)) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "qemu.log")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		m := newMemory()
		g := newGuest(m.dial, log, slog.New(slog.DiscardHandler))
		var running sync.WaitGroup
		g.call = func(context.Context, string) (net.Conn, error) {
			here, there := net.Pipe()
			running.Go(func() { _, _ = readWord(there); there.Close() })
			return here, nil
		}
		for _, f := range []func(context.Context){g.follow, g.askAgent, g.stop, g.move} {
			running.Go(func() { f(ctx) })
		}
		test(t, m, g)
		cancel()
		running.Wait()
		if n := g.life.Illegal(); n > 0 {
			t.Errorf("%d illegal transitions; the state is %s", n, g.life.Now())
		}
	})
}

func mustCreate(t *testing.T, g *guest) {
	t.Helper()
	if err := g.create(t.Context(), "<domain/>", false, func(s *pb.GuestState) {
		s.VolumeTargets = map[string]string{"a": "vda"}
	}); err != nil {
		t.Fatal(err)
	}
}

// A guest that starts paused is seen as one that a user has paused.
func TestCreatePaused(t *testing.T) {
	withGuest(t, func(t *testing.T, _ *memory, g *guest) {
		if err := g.create(t.Context(), "<domain/>", true, func(*pb.GuestState) {}); err != nil {
			t.Fatal(err)
		}
		expect(t, g, paused, "user")
	})
}

func expect(t *testing.T, g *guest, want pb.Lifecycle, reason string) {
	t.Helper()
	synctest.Wait()
	if s := g.snapshot(); s.Lifecycle != want || s.Reason != reason {
		t.Fatalf("state %v (%s), want %v (%s)", s.Lifecycle, s.Reason, want, reason)
	}
}

const (
	none         = pb.Lifecycle_LIFECYCLE_NONE
	runs         = pb.Lifecycle_LIFECYCLE_RUNNING
	paused       = pb.Lifecycle_LIFECYCLE_PAUSED
	shuttingDown = pb.Lifecycle_LIFECYCLE_SHUTTING_DOWN
	shutOff      = pb.Lifecycle_LIFECYCLE_SHUTOFF
	crashed      = pb.Lifecycle_LIFECYCLE_CRASHED
	destroyed    = pb.Lifecycle_LIFECYCLE_DESTROYED
)

func TestGuestLife(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		expect(t, g, none, "")
		mustCreate(t, g)
		expect(t, g, runs, "booted")
		if s := g.snapshot(); s.Machine != "pc-q35-10.0" || !s.Emulation || s.StartedAt == nil ||
			s.VolumeTargets["a"] != "vda" || s.MemoryAtBoot != 1<<27 {
			t.Errorf("%v", s)
		}
		m.change(func(d *hypervisor.Domain) { d.Run, d.Reason = hypervisor.Paused, "ioerror" })
		expect(t, g, paused, "ioerror")
		m.change(func(d *hypervisor.Domain) { d.Run, d.Reason = hypervisor.Running, "unpaused" })
		expect(t, g, runs, "unpaused")
		m.end(hypervisor.End{Outcome: hypervisor.Shutdown, Reason: "shutdown"})
		expect(t, g, shutOff, "shutdown")
		<-g.ended()
	})
}

func TestGuestOutcomes(t *testing.T) {
	for outcome, want := range map[hypervisor.Outcome]pb.Lifecycle{
		hypervisor.Shutdown:  shutOff,
		hypervisor.Crashed:   crashed,
		hypervisor.Destroyed: destroyed,
	} {
		withGuest(t, func(t *testing.T, m *memory, g *guest) {
			mustCreate(t, g)
			m.end(hypervisor.End{Outcome: outcome, Reason: "r"})
			expect(t, g, want, "r")
		})
	}
}

func TestGracefulShutdown(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		m.obeys = 3 // the guest is still booting when the button is first pressed
		mustCreate(t, g)
		began := time.Now()
		g.shutdown(time.Minute)
		expect(t, g, shuttingDown, "booted")
		<-g.ended()
		expect(t, g, shutOff, "shutdown")
		if took := time.Since(began); took != 2*pressInterval {
			t.Errorf("took %v", took)
		}
	})
}

func TestGraceOver(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		m.obeys = 0
		mustCreate(t, g)
		began := time.Now()
		g.shutdown(25 * time.Second)
		<-g.ended()
		expect(t, g, destroyed, "destroyed")
		if took := time.Since(began); took != 25*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestShutdownOnlyShortens(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		m.obeys = 0
		mustCreate(t, g)
		began := time.Now()
		g.shutdown(30 * time.Second)
		g.shutdown(time.Hour)
		time.Sleep(5 * time.Second)
		g.shutdown(time.Second)
		<-g.ended()
		if took := time.Since(began); took != 6*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestShutdownOfAPausedGuest(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		mustCreate(t, g)
		m.change(func(d *hypervisor.Domain) { d.Run = hypervisor.Paused })
		synctest.Wait()
		g.shutdown(time.Minute)
		<-g.ended()
		expect(t, g, shutOff, "shutdown")
	})
}

func TestShutdownBeforeStart(t *testing.T) {
	withGuest(t, func(t *testing.T, _ *memory, g *guest) {
		g.shutdown(time.Minute)
		expect(t, g, shutOff, "not started")
	})
}

func TestDaemonComesBack(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		mustCreate(t, g)
		m.crash()
		expect(t, g, runs, "booted")
		m.mu.Lock()
		m.domain.Run, m.domain.Reason = hypervisor.Paused, "ioerror" // meanwhile
		m.mu.Unlock()
		m.restart()
		expect(t, g, paused, "ioerror")
		m.end(hypervisor.End{Outcome: hypervisor.Crashed, Reason: "failed"})
		expect(t, g, crashed, "failed")
	})
}

func TestShutdownWaitsForTheDaemon(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		mustCreate(t, g)
		m.crash()
		g.shutdown(time.Minute)
		expect(t, g, shuttingDown, "booted")
		// The guest may end before the new connection has looked for it: then its log tells, as libvirtd writes it.
		if err := os.WriteFile(g.qemuLog, []byte("starting up\nx: shutting down, reason=shutdown\n"),
			0o600); err != nil {
			t.Fatal(err)
		}
		m.restart()
		<-g.ended()
		expect(t, g, shutOff, "shutdown")
	})
}

func TestGuestGoneWithTheDaemon(t *testing.T) {
	for _, tc := range []struct {
		log, reason string
		want        pb.Lifecycle
	}{
		{"", "lost", crashed},
		{"x: shutting down, reason=crashed\n", "crashed", crashed},
		{
			"qemu-system-x86_64: ../a.c:1: f: Assertion `b' failed.\nx: shutting down, reason=crashed\n",
			"crashed; QEMU said last: ../a.c:1: f: Assertion `b' failed.", crashed,
		},
		{"x: shutting down, reason=shutdown\n", "shutdown", shutOff},
	} {
		withGuest(t, func(t *testing.T, m *memory, g *guest) {
			mustCreate(t, g)
			m.crash()
			m.mu.Lock()
			m.domain = nil
			m.mu.Unlock()
			if err := os.WriteFile(g.qemuLog, []byte(tc.log), 0o600); err != nil {
				t.Fatal(err)
			}
			m.restart()
			expect(t, g, tc.want, tc.reason)
		})
	}
}

// A new daemon shows a domain until it has found that there is no QEMU, and says nothing when it drops it.
func TestDaemonDropsTheGuest(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		var ended atomic.Bool
		g.qemu = func() (process, error) {
			if ended.Load() {
				return nil, errQEMUEnded
			}
			return &qemu{}, nil
		}
		mustCreate(t, g)
		m.crash()
		m.restart()
		expect(t, g, runs, "booted")
		time.Sleep(2 * relook) // of the bubble
		expect(t, g, runs, "booted")
		ended.Store(true)
		time.Sleep(2 * relook)
		expect(t, g, runs, "booted")
		m.mu.Lock()
		m.domain = nil
		m.mu.Unlock()
		time.Sleep(2 * relook)
		expect(t, g, crashed, "lost")
	})
}

func TestFailedCreateIsNotTheEnd(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		m.createErr = &hypervisor.LockedError{Path: "/x"}
		if err := g.create(t.Context(), "", false, func(*pb.GuestState) {}); err == nil {
			t.Fatal("no error")
		}
		expect(t, g, none, "")
		m.createErr = nil
		mustCreate(t, g)
		expect(t, g, runs, "booted")
	})
}

// The end of a domain that could not be created may be heard of when the next one is there.
func TestLateEndOfFailedCreate(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		mustCreate(t, g)
		m.mu.Lock()
		m.notify(hypervisor.Event{End: &hypervisor.End{Outcome: hypervisor.Crashed, Reason: "failed"}})
		m.mu.Unlock()
		expect(t, g, runs, "booted")
		m.end(hypervisor.End{Outcome: hypervisor.Shutdown, Reason: "shutdown"})
		expect(t, g, shutOff, "shutdown")
	})
}

// The end of a domain that could not be created may be heard of when the next one is gone already, which has ended
// as its own event says.
func TestLateEndOfFailedCreateAfterTheEnd(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		synctest.Wait()
		looks := make(chan struct{})
		m.mu.Lock()
		m.createErr, m.busy = errors.New("no memory left"), looks // the look at that event takes long
		m.mu.Unlock()
		if err := g.create(t.Context(), "<domain/>", false, func(*pb.GuestState) {}); err == nil {
			t.Fatal("it was created")
		}
		synctest.Wait()
		m.mu.Lock()
		m.createErr, m.busy = nil, nil
		m.mu.Unlock()
		mustCreate(t, g)
		m.end(hypervisor.End{Outcome: hypervisor.Shutdown, Reason: "shutdown"})
		close(looks)
		expect(t, g, shutOff, "shutdown")
	})
}

// An end is taken in the end, also where the event of the start before it never comes.
func TestEndWithoutStart(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		m.onCreate = func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.unheard = g.conn
		}
		mustCreate(t, g)
		m.end(hypervisor.End{Outcome: hypervisor.Crashed, Reason: "failed"})
		time.Sleep(2 * relook) // of the bubble
		expect(t, g, crashed, "failed")
	})
}

// TestLateEndsOfFailedCreates has the word of each failed start come at any moment of the next one.
func TestLateEndsOfFailedCreates(t *testing.T) {
	for range 200 {
		withGuest(t, func(t *testing.T, m *memory, g *guest) {
			for range 3 {
				m.mu.Lock()
				m.createErr = errors.New("no memory left")
				m.mu.Unlock()
				if err := g.create(t.Context(), "<domain/>", false, func(*pb.GuestState) {}); err == nil {
					t.Fatal("it was created")
				}
			}
			m.mu.Lock()
			m.createErr = nil
			m.mu.Unlock()
			mustCreate(t, g)
			expect(t, g, runs, "booted")
			m.end(hypervisor.End{Outcome: hypervisor.Shutdown, Reason: "shutdown"})
			expect(t, g, shutOff, "shutdown")
		})
	}
}

func TestGuestEndsAtOnce(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		m.onCreate = func() { m.end(hypervisor.End{Outcome: hypervisor.Crashed, Reason: "failed"}) }
		mustCreate(t, g)
		expect(t, g, crashed, "failed")
	})
}

func TestDaemonDiesWhileCreating(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		m.onCreate = func() {
			m.crash()
			m.restart()
		}
		mustCreate(t, g)
		expect(t, g, runs, "booted")
	})
}

func TestAgent(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		var address atomic.Pointer[string]
		address.Store(new("10.0.2.2"))
		m.agent = func(command string) (string, error) {
			switch {
			case strings.Contains(command, "guest-info"):
				return `{"return":{"version":"10.0.2"}}`, nil
			case strings.Contains(command, "interfaces"):
				return `{"return":[{"name":"eth0","hardware-address":"02:00:00:00:00:01","ip-addresses":[{"ip-address":"` + *address.Load() + `"}]}]}`, nil
			case strings.Contains(command, "osinfo"):
				return `{"return":{"id":"tiny"}}`, nil
			}
			return `{"return":"thawed"}`, nil
		}
		mustCreate(t, g)
		m.change(func(d *hypervisor.Domain) { d.AgentConnected = true })
		synctest.Wait()
		s := g.snapshot()
		if !s.AgentConnected || s.AgentVersion != "10.0.2" || s.FsfreezeStatus != "thawed" ||
			!strings.Contains(string(s.GuestOsJson), `"tiny"`) ||
			!strings.Contains(string(s.InterfacesJson), *address.Load()) {
			t.Errorf("%v", s)
		}
		// It is asked again from time to time, and watchers only hear of changes.
		_, changed := g.watch()
		time.Sleep(3 * interval)
		select {
		case <-changed:
			t.Error("a change without a difference")
		default:
		}
		address.Store(new("10.0.2.3"))
		time.Sleep(interval + time.Second)
		if s := g.snapshot(); !strings.Contains(string(s.InterfacesJson), *address.Load()) {
			t.Errorf("%v", s)
		}
		m.change(func(d *hypervisor.Domain) { d.AgentConnected = false })
		synctest.Wait()
		if s := g.snapshot(); s.AgentConnected || s.AgentVersion != "" || s.GuestOsJson != nil {
			t.Errorf("%v", s)
		}
	})
}

// lookBefore asks the daemon, and something happens before the answer is there.
type lookBefore struct {
	hypervisor.Connection
	happens func()
}

func (l lookBefore) Domain(context.Context) (hypervisor.Domain, error) {
	l.happens()
	return hypervisor.Domain{}, hypervisor.ErrNoDomain
}

// A new connection's first look may be answered when the guest has just been made.
func TestGuestMadeDuringTheFirstLook(t *testing.T) {
	withGuest(t, func(t *testing.T, _ *memory, g *guest) {
		g.refresh(t.Context(), lookBefore{happens: func() { mustCreate(t, g) }}, true)
		expect(t, g, runs, "booted")
	})
}
