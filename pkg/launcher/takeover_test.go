package launcher

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	"github.com/virtkit/virtkit/pkg/launcher/lifecycle"
	"github.com/virtkit/virtkit/pkg/launcher/termination"
	"github.com/virtkit/virtkit/pkg/names"
)

// expectGuest makes a launcher the target of a migration.
func expectGuest(t *testing.T, m *memory, g *guest, d hypervisor.Domain) {
	t.Helper()
	g.expect(nil, nil)
	m.mu.Lock()
	m.domain = &d
	m.notify(hypervisor.Event{})
	m.mu.Unlock()
	synctest.Wait()
}

var here = hypervisor.Domain{Run: hypervisor.Paused, Reason: "user"}

func TestTakeOver(t *testing.T) {
	for name, tc := range map[string]struct {
		paused bool
		want   string
	}{"run": {false, "unpaused"}, "stay": {true, "user"}} {
		t.Run(name, func(t *testing.T) {
			withGuest(t, func(t *testing.T, m *memory, g *guest) {
				if err := g.takeOver(t.Context(), false); status.Code(err) != codes.FailedPrecondition {
					t.Errorf("before it is there: %v", err)
				}
				expectGuest(t, m, g, here)
				expect(t, g, none, "")
				if !g.snapshot().Arrived {
					t.Error("the guest was not received")
				}
				want := runs
				if tc.paused {
					want = paused
				}
				for range 2 { // both ways of being told
					if err := g.takeOver(t.Context(), tc.paused); err != nil {
						t.Fatal(err)
					}
					expect(t, g, want, tc.want)
				}
			})
		})
	}
}

// A received guest that cannot be started is paused; it is nowhere else.
func TestTakeOverFails(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		expectGuest(t, m, g, here)
		m.mu.Lock()
		m.resumeErr = errors.New("no lock")
		m.mu.Unlock()
		if err := g.takeOver(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		expect(t, g, paused, "user")
	})
}

// A guest that ends before it may run has crashed, once it is known to be nowhere else.
func TestReceivedAndEnded(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		expectGuest(t, m, g, here)
		m.end(hypervisor.End{Outcome: hypervisor.Crashed, Reason: "failed"})
		expect(t, g, none, "")
		if err := g.takeOver(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		expect(t, g, crashed, names.ReasonNeverRan)
	})
}

// A QEMU that has died, which libvirtd has not noticed yet, has not run the guest: the source may go on.
func TestTakeOverOfDeadQEMU(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		n := &notes{}
		g.note = n.note
		expectGuest(t, m, g, here)
		g.qemu = func() (process, error) { return nil, errQEMUEnded }
		if err := g.takeOver(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		if g.mayHaveRun() || n.get() != neverRan {
			t.Errorf("it may have run; the termination message is %+v", n.get())
		}
		m.end(hypervisor.End{Outcome: hypervisor.Crashed, Reason: "failed"})
		expect(t, g, crashed, names.ReasonNeverRan)
	})
}

// QEMU dies at some instant between the source's word and the start: as long as libvirt was not told to start the
// guest, it never ran, whoever is the first to notice, and however long the launcher was stopped in between.
func TestTakeOverWhileQEMUDies(t *testing.T) {
	alive := func() (process, error) { return &qemu{}, nil }
	dead := func() (process, error) { return nil, errQEMUEnded }
	noFile := func() (process, error) { return nil, &fs.PathError{Op: "open", Path: "pid", Err: fs.ErrNotExist} }
	for name, looks := range map[string][]func() (process, error){
		"before the first look":                        {dead},
		"between two looks":                            {alive, dead},
		"before the first look, libvirt has noticed":   {noFile},
		"between two looks, libvirt has just noticed":  {alive, noFile},
		"and libvirt notices while it is looked again": {noFile, alive, noFile, noFile},
	} {
		t.Run(name, func(t *testing.T) {
			withGuest(t, func(t *testing.T, m *memory, g *guest) {
				n := &notes{}
				g.note = n.note
				expectGuest(t, m, g, here)
				end := hypervisor.End{Outcome: hypervisor.Crashed, Reason: "failed"}
				g.qemu = func() (process, error) {
					look := looks[0]
					if looks = looks[1:]; len(looks) == 0 {
						looks = append(looks, look)
						go m.end(end) // once QEMU is gone, libvirt says so
					}
					return look()
				}
				if err := g.takeOver(t.Context(), false); err != nil {
					t.Fatal(err)
				}
				if g.mayHaveRun() || n.get() != neverRan {
					t.Errorf("it may have run; the termination message is %+v", n.get())
				}
				expect(t, g, crashed, names.ReasonNeverRan)
			})
		})
	}
}

// A libvirtd that does not say what became of QEMU is asked for a while. Nothing is started meanwhile.
func TestTakeOverOfUnknownQEMU(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		n := &notes{}
		g.note = n.note
		expectGuest(t, m, g, here)
		g.qemu = func() (process, error) { return nil, fs.ErrNotExist }
		if err := g.takeOver(t.Context(), false); status.Code(err) != codes.Unavailable {
			t.Errorf("%v", err)
		}
		expect(t, g, none, "")
		if g.mayHaveRun() || n.get() != neverRan {
			t.Errorf("it may have run; the termination message is %+v", n.get())
		}
		g.qemu = func() (process, error) { return &qemu{}, nil }
		if err := g.takeOver(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		expect(t, g, runs, "unpaused")
		if n.get() != (termination.Message{}) {
			t.Errorf("termination message %+v", n.get())
		}
	})
}

// However a guest that was not started has ended, its launcher's last word is that it never ran: libvirt's word for a
// QEMU that was told to end, or that libvirtd ends, is not that of a crash.
func TestLastWordOfNeverStarted(t *testing.T) {
	for name, outcome := range map[string]hypervisor.Outcome{
		"shut down": hypervisor.Shutdown, "destroyed": hypervisor.Destroyed, "crashed": hypervisor.Crashed,
	} {
		for _, when := range []string{"received", "released"} {
			t.Run(name+" when it was "+when, func(t *testing.T) {
				withGuest(t, func(t *testing.T, m *memory, g *guest) {
					expectGuest(t, m, g, here)
					if when == "released" {
						g.mu.Lock()
						g.applyLocked(lifecycle.Release)
						g.mu.Unlock()
					}
					g.terminate()
					m.end(hypervisor.End{Outcome: outcome, Reason: "libvirt's"})
					if when == "received" {
						if err := g.takeOver(t.Context(), false); err != nil {
							t.Fatal(err)
						}
					}
					synctest.Wait()
					if s := g.snapshot(); !s.Lifecycle.Final() || s.Reason != names.ReasonNeverRan {
						t.Errorf("it ended as %s, %q", s.Lifecycle, s.Reason)
					}
				})
			})
		}
	}
}

// Over a socket: the first to ask is the last, but not one who hangs up.
func TestServeSource(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		s := newService(t.Context(), Options{Log: g.log}, g, nil)
		connections := make(pipes, 1)
		done := make(chan struct{})
		go func() { s.serveSource(t.Context(), connections); close(done) }()
		a, b := net.Pipe()
		connections <- b
		a.Close()
		a, b = net.Pipe()
		connections <- b
		expectGuest(t, m, g, here)
		if word, err := readWord(a); err != nil || word != wordArrived {
			t.Fatalf("asked %q, %v", word, err)
		}
		if _, err := io.WriteString(a, "run\n"); err != nil {
			t.Fatal(err)
		}
		if word, err := readWord(a); err != nil || word != wordRunning {
			t.Fatalf("it says %q, %v", word, err)
		}
		<-done
		expect(t, g, runs, "unpaused")
	})
}

// pipes is a listener whose connections the test makes.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) { return <-p, nil }
func (pipes) Close() error                { return nil }
func (pipes) Addr() net.Addr              { return nil }
