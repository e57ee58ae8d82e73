package launcher

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/virtkit/virtkit/pkg/hypervisor"
	"github.com/virtkit/virtkit/pkg/names"
)

// qemu is the domain's process, which only notes what it gets.
type qemu struct {
	got  []os.Signal
	err  error
	hear func(os.Signal)
}

func (q *qemu) Signal(s os.Signal) error {
	q.got = append(q.got, s)
	if q.hear != nil {
		q.hear(s)
	}
	return q.err
}
func (q *qemu) Release() error { return nil }

// leaving is a guest on its way to a launcher that the test plays.
type leaving struct {
	*guest
	m     *memory
	qemu  *qemu
	ends  chan<- outcome
	other net.Conn
}

func withLeaving(t *testing.T, test func(t *testing.T, l *leaving)) {
	t.Helper()
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		l := &leaving{guest: g, m: m, qemu: &qemu{}}
		g.qemu = func() (process, error) { return l.qemu, nil }
		g.call = func(context.Context, string) (here net.Conn, _ error) {
			here, l.other = net.Pipe()
			return here, nil
		}
		l.ends = migrating(m)
		mustCreate(t, g)
		mustLeave(t, g, "a")
		test(t, l)
	})
}

// standStill is what libvirt does when all is copied.
func (l *leaving) standStill() {
	l.m.change(func(d *hypervisor.Domain) { d.Run, d.Reason = hypervisor.Paused, "migration" })
	synctest.Wait()
}

func (l *leaving) arrived(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(l.other, "arrived\n"); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// hear is what the other launcher is told; empty is nothing.
func (l *leaving) hear(t *testing.T) string {
	t.Helper()
	line, err := bufio.NewReader(l.other).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// answer is that, too, after which the other launcher hangs up.
func (l *leaving) answer(t *testing.T) string {
	t.Helper()
	defer l.other.Close()
	return l.hear(t)
}

// say is what the other launcher answers.
func (l *leaving) say(t *testing.T, word string) {
	t.Helper()
	if _, err := io.WriteString(l.other, word+"\n"); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// signals are what QEMU got.
func (l *leaving) signals(t *testing.T, want ...os.Signal) {
	t.Helper()
	synctest.Wait()
	if !slices.Equal(l.qemu.got, want) {
		t.Errorf("QEMU got %v, want %v", l.qemu.got, want)
	}
}

// Once the guest is there, the one here is stopped before the other may run, and ended when it does; whatever libvirt
// says after that.
func TestHandOver(t *testing.T) {
	for name, end := range map[string]outcome{
		"libvirt agrees":        {result: hypervisor.Migrated{Downtime: time.Second}},
		"libvirt lost its word": {err: errors.New("client socket is closed")},
	} {
		t.Run(name, func(t *testing.T) {
			withLeaving(t, func(t *testing.T, l *leaving) {
				l.standStill()
				l.arrived(t)
				if got := l.hear(t); got != wordRun {
					t.Errorf("answer %q", got)
				}
				l.signals(t, syscall.SIGSTOP)
				l.say(t, wordRunning)
				l.signals(t, syscall.SIGSTOP, syscall.SIGKILL)
				l.m.end(hypervisor.End{Outcome: hypervisor.Crashed, Reason: "failed"}) // as libvirt sees it
				l.ends <- end
				expect(t, l.guest, migrated, "migrated")
				expectMigration(t, l.guest, "a", completed)
			})
		})
	}
}

// libvirt has let the guest go on here, since the target's word came too late: then that is where it is.
func TestHandOverTooLate(t *testing.T) {
	withLeaving(t, func(t *testing.T, l *leaving) {
		l.arrived(t) // while the guest runs here
		if want := []os.Signal{syscall.SIGSTOP, syscall.SIGCONT}; !slices.Equal(l.qemu.got, want) {
			t.Errorf("QEMU got %v", l.qemu.got)
		}
		l.ends <- outcome{err: errors.New("client socket is closed")}
		if got := l.answer(t); got != "" {
			t.Errorf("answer %q", got)
		}
		expect(t, l.guest, runs, "booted")
		expectMigration(t, l.guest, "a", didFail)
	})
}

// libvirt is ending the guest just then, and says nothing until QEMU is gone: a QEMU that stands still would have it
// wait for ten seconds.
func TestHandOverWhileLibvirtEndsTheGuest(t *testing.T) {
	withLeaving(t, func(t *testing.T, l *leaving) {
		l.standStill()
		busy := make(chan struct{})
		l.m.mu.Lock()
		l.m.busy = busy
		l.m.mu.Unlock()
		l.qemu.hear = func(s os.Signal) {
			if s == syscall.SIGCONT {
				close(busy)
			}
		}
		l.arrived(t)
		began := time.Now()
		<-busy
		if took := time.Since(began); took > time.Second {
			t.Errorf("QEMU stood still for %s", took)
		}
		told := make(chan string, 1)
		go func() { told <- l.answer(t) }()
		l.ends <- outcome{}
		if got := <-told; got != wordRun {
			t.Errorf("answer %q", got)
		}
		if want := []os.Signal{syscall.SIGSTOP, syscall.SIGCONT}; !slices.Equal(l.qemu.got, want) {
			t.Errorf("QEMU got %v", l.qemu.got)
		}
		expect(t, l.guest, migrated, "migrated")
	})
}

// Without a process to end, libvirt's word counts.
func TestHandOverByLibvirt(t *testing.T) {
	withLeaving(t, func(t *testing.T, l *leaving) {
		l.standStill()
		l.guest.qemu = func() (process, error) { return nil, os.ErrNotExist }
		l.arrived(t)
		told := make(chan string, 1)
		go func() { told <- l.answer(t) }()
		l.ends <- outcome{}
		if got := <-told; got != wordRun {
			t.Errorf("answer %q", got)
		}
		expect(t, l.guest, migrated, "migrated")
	})
}

// A guest that was paused stays so at the other side.
func TestHandOverPaused(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		g.qemu = func() (process, error) { return &qemu{}, nil }
		var other net.Conn
		g.call = func(context.Context, string) (here net.Conn, _ error) { here, other = net.Pipe(); return here, nil }
		ends := migrating(m)
		mustCreate(t, g)
		m.change(func(d *hypervisor.Domain) { d.Run, d.Reason = hypervisor.Paused, "user" })
		expect(t, g, paused, "user")
		mustLeave(t, g, "a")
		l := &leaving{guest: g, other: other}
		l.arrived(t)
		if got := l.hear(t); got != wordStay {
			t.Errorf("answer %q", got)
		}
		l.say(t, wordRunning)
		ends <- outcome{}
		expect(t, g, migrated, "migrated")
	})
}

// The daemon dies when all is copied, and leaves the guest standing still: it goes on here, and is not given up any
// more.
func TestStandsStillAndStays(t *testing.T) {
	withLeaving(t, func(t *testing.T, l *leaving) {
		l.standStill()
		l.m.crash()
		l.ends <- outcome{err: errLost}
		l.m.restart()
		time.Sleep(time.Second) // of the bubble
		synctest.Wait()
		expect(t, l.guest, runs, "unpaused")
		expectMigration(t, l.guest, "a", didFail)
		if _, err := l.commit(t.Context(), "a"); err == nil {
			t.Error("given up although it stays")
		}
		if len(l.qemu.got) > 0 {
			t.Errorf("QEMU got %v", l.qemu.got)
		}
	})
}

// libvirt cannot let the guest go on while the target has its disks; it does when they are free.
func TestDisksHeldByTarget(t *testing.T) {
	withLeaving(t, func(t *testing.T, l *leaving) {
		l.m.mu.Lock()
		l.m.resumeErr = errors.New(`Failed to get "write" lock`)
		l.m.mu.Unlock()
		l.m.change(func(d *hypervisor.Domain) { d.Run, d.Reason = hypervisor.Paused, "api-error" })
		l.ends <- outcome{err: errors.New("client socket is closed")}
		expectMigration(t, l.guest, "a", didFail) // and the target's pod is deleted
		time.Sleep(time.Minute)                   // of the bubble
		expect(t, l.guest, paused, "api-error")
		l.m.mu.Lock()
		l.m.resumeErr = nil
		l.m.mu.Unlock()
		time.Sleep(time.Second) // of the bubble
		expect(t, l.guest, runs, "unpaused")
	})
}

// arriving is a launcher to which a guest comes.
func arriving(t *testing.T, m *memory, g *guest, d hypervisor.Domain) {
	t.Helper()
	g.expect(nil, nil)
	m.mu.Lock()
	m.domain = &d
	m.tell(hypervisor.Event{})
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
				arriving(t, m, g, here)
				expect(t, g, none, "")
				if !g.snapshot().Arrived {
					t.Error("it has not arrived")
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

// A guest that cannot be started where it has arrived is paused there; it is nowhere else.
func TestTakeOverFails(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		arriving(t, m, g, here)
		m.mu.Lock()
		m.resumeErr = errors.New("no lock")
		m.mu.Unlock()
		if err := g.takeOver(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		expect(t, g, paused, "user")
	})
}

// A QEMU that has died, which libvirtd has not noticed yet, has not run the guest: the source may go on.
func TestTakeOverOfDeadQEMU(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		n := &notes{}
		g.note = n.note
		arriving(t, m, g, here)
		g.qemu = func() (process, error) { return nil, errQEMUEnded }
		m.mu.Lock()
		m.resumeErr = errors.New("the monitor is closed")
		m.mu.Unlock()
		done := make(chan error, 1)
		go func() { done <- g.takeOver(t.Context(), false) }()
		time.Sleep(handoverPause / 2) // of the bubble
		m.end(hypervisor.End{Outcome: hypervisor.Crashed, Reason: "failed"})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if g.started() || n.get() != neverRan {
			t.Errorf("it may have run; the last words are %+v", n.get())
		}
	})
}

// A guest that ends before it may run has crashed, once it is known to be nowhere else.
func TestArrivedAndEnded(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		arriving(t, m, g, here)
		m.end(hypervisor.End{Outcome: hypervisor.Crashed, Reason: "failed"})
		expect(t, g, none, "")
		if err := g.takeOver(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		expect(t, g, crashed, names.ReasonNeverRan)
	})
}

// Over a socket: the first to ask is the last, but not one who hangs up.
func TestServeArrival(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		s := newService(t.Context(), Options{Log: g.log}, g, nil)
		connections := make(pipes, 1)
		done := make(chan struct{})
		go func() { s.serveArrival(t.Context(), connections); close(done) }()
		a, b := net.Pipe()
		connections <- b
		a.Close()
		a, b = net.Pipe()
		connections <- b
		arriving(t, m, g, here)
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

func TestFindQEMU(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }() // again, when a check has failed
	file := filepath.Join(t.TempDir(), "pid")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(strconv.Itoa(cmd.Process.Pid))
	found, err := findQEMU(file, "/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	if err := found.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := findQEMU(file, "/usr/bin/qemu-system-x86_64"); !errors.Is(err, errQEMUEnded) {
		t.Errorf("another program's process is found: %v", err)
	}
	for _, text := range []string{"", "x", "1", "-5", "999999999"} {
		write(text)
		if _, err := findQEMU(file, "/bin/sleep"); err == nil || errors.Is(err, errQEMUEnded) != (text == "999999999") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := findQEMU(file+"-none", "/bin/sleep"); err == nil || errors.Is(err, errQEMUEnded) {
		t.Errorf("without the file it is not known: %v", err)
	}
	write(strconv.Itoa(cmd.Process.Pid))
	if err := errors.Join(cmd.Process.Kill(), cmd.Wait()); err == nil {
		t.Fatal("it was not killed")
	}
	if _, err := findQEMU(file, "/bin/sleep"); !errors.Is(err, errQEMUEnded) {
		t.Errorf("one that was killed: %v", err)
	}
}
