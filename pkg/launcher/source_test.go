package launcher

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
)

// qemu is the domain's process, which only notes what it gets.
type qemu struct {
	mu   sync.Mutex
	got  []os.Signal
	err  error
	hear func(os.Signal)
}

func (q *qemu) Signal(s os.Signal) error {
	q.mu.Lock()
	q.got = append(q.got, s)
	q.mu.Unlock()
	if q.hear != nil {
		q.hear(s)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}
func (q *qemu) Release() error { return nil }

func (q *qemu) signals() []os.Signal {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.got)
}

// leaving is a guest on its way to a launcher that the test plays.
type leaving struct {
	*guest
	m     *memory
	qemu  *qemu
	ends  chan<- outcome
	other net.Conn
	// dial makes the connections to that launcher.
	dial atomic.Pointer[func(context.Context, string) (net.Conn, error)]
}

// redirect changes how that launcher is reached.
func (l *leaving) redirect(dial func(context.Context, string) (net.Conn, error)) { l.dial.Store(&dial) }

func withLeaving(t *testing.T, test func(t *testing.T, l *leaving)) {
	t.Helper()
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		l := &leaving{guest: g, m: m, qemu: &qemu{}}
		g.qemu = func() (process, error) { return l.qemu, nil }
		l.redirect(func(context.Context, string) (here net.Conn, _ error) {
			here, l.other = net.Pipe()
			return here, nil
		})
		g.call = func(ctx context.Context, path string) (net.Conn, error) { return (*l.dial.Load())(ctx, path) }
		l.ends = migrating(m)
		mustCreate(t, g)
		mustLeave(t, g, "a")
		test(t, l)
	})
}

// standStill is what libvirt does when all is copied.
func (l *leaving) standStill() {
	l.m.mu.Lock()
	l.m.domain.Run, l.m.domain.Reason = hypervisor.Paused, "migration"
	l.m.notify(hypervisor.Event{StoppedToMove: true})
	l.m.mu.Unlock()
	synctest.Wait()
}

func (l *leaving) sayArrived(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(l.other, "arrived\n"); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// silent has libvirtd not say how the domain is until its QEMU is continued; then happens first. What it returns is
// closed then.
func (l *leaving) silent(then func()) <-chan struct{} {
	busy := make(chan struct{})
	l.m.mu.Lock()
	l.m.busy = busy
	l.m.mu.Unlock()
	l.qemu.hear = func(s os.Signal) {
		if s == syscall.SIGCONT {
			then()
			l.m.mu.Lock()
			l.m.busy = nil
			l.m.mu.Unlock()
			close(busy)
		}
	}
	return busy
}

// hear is what the other launcher hears; empty is nothing.
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
	if !slices.Equal(l.qemu.signals(), want) {
		t.Errorf("QEMU got %v, want %v", l.qemu.signals(), want)
	}
}

// Once the guest is there, the one here is stopped before the other may run, and ended when it does. It has moved then,
// and nobody waits for libvirt, whatever that says later.
func TestHandoff(t *testing.T) {
	for name, end := range map[string]outcome{
		"libvirt agrees":        {result: hypervisor.Migrated{Downtime: time.Second}},
		"libvirt lost its word": {err: errors.New("client socket is closed")},
	} {
		t.Run(name, func(t *testing.T) {
			withLeaving(t, func(t *testing.T, l *leaving) {
				l.standStill()
				l.sayArrived(t)
				if got := l.hear(t); got != wordRun {
					t.Errorf("answer %q", got)
				}
				l.signals(t, syscall.SIGSTOP)
				const gap = 80 * time.Millisecond
				time.Sleep(gap) // of the bubble
				l.say(t, wordRunning)
				l.signals(t, syscall.SIGSTOP, syscall.SIGKILL)
				expect(t, l.guest, migrated, "migrated")
				if m := expectMigration(t, l.guest, "a", completed); m.Downtime.AsDuration() != gap {
					t.Errorf("it stood still for %s, want %s", m.Downtime.AsDuration(), gap)
				}
				l.m.end(hypervisor.End{Outcome: hypervisor.Crashed, Reason: "failed"}) // as libvirt sees it
				l.ends <- end
				expect(t, l.guest, migrated, "migrated")
				expectMigration(t, l.guest, "a", completed)
			})
		})
	}
}

// libvirt has let the guest go on here, since the target's word came too late: then that is where it is.
func TestHandoffTooLate(t *testing.T) {
	withLeaving(t, func(t *testing.T, l *leaving) {
		l.sayArrived(t) // while the guest runs here
		if want := []os.Signal{syscall.SIGSTOP, syscall.SIGCONT}; !slices.Equal(l.qemu.signals(), want) {
			t.Errorf("QEMU got %v", l.qemu.signals())
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
func TestHandoffWhileLibvirtEndsTheGuest(t *testing.T) {
	withLeaving(t, func(t *testing.T, l *leaving) {
		l.standStill()
		busy := l.silent(func() { l.m.end(hypervisor.End{Outcome: hypervisor.Moved, Reason: "migrated"}) })
		l.sayArrived(t)
		began := time.Now()
		<-busy
		if took := time.Since(began); took > time.Second {
			t.Errorf("QEMU stood still for %s", took)
		}
		heard := make(chan string, 1)
		go func() { heard <- l.answer(t) }()
		l.ends <- outcome{}
		if got := <-heard; got != wordRun {
			t.Errorf("answer %q", got)
		}
		if want := []os.Signal{syscall.SIGSTOP, syscall.SIGCONT}; !slices.Equal(l.qemu.signals(), want) {
			t.Errorf("QEMU got %v", l.qemu.signals())
		}
		expect(t, l.guest, migrated, "migrated")
	})
}

// libvirtd is only slow to say how the guest is: that is asked again, and the guest is handed over.
func TestHandoffBySlowLibvirt(t *testing.T) {
	withLeaving(t, func(t *testing.T, l *leaving) {
		l.standStill()
		l.silent(func() {})
		l.sayArrived(t)
		if got := l.hear(t); got != wordRun {
			t.Errorf("answer %q", got)
		}
		l.signals(t, syscall.SIGSTOP, syscall.SIGCONT, syscall.SIGSTOP)
		l.say(t, wordRunning)
		expect(t, l.guest, migrated, "migrated")
		l.ends <- outcome{}
		synctest.Wait()
	})
}

// Without a process to end, libvirt's word counts.
func TestHandoffByLibvirt(t *testing.T) {
	withLeaving(t, func(t *testing.T, l *leaving) {
		l.standStill()
		l.guest.qemu = func() (process, error) { return nil, os.ErrNotExist }
		l.sayArrived(t)
		heard := make(chan string, 1)
		go func() { heard <- l.answer(t) }()
		l.ends <- outcome{}
		if got := <-heard; got != wordRun {
			t.Errorf("answer %q", got)
		}
		expect(t, l.guest, migrated, "migrated")
	})
}

// A guest that was paused stays so at the other side.
func TestHandoffPaused(t *testing.T) {
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
		l.sayArrived(t)
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
		if len(l.qemu.signals()) > 0 {
			t.Errorf("QEMU got %v", l.qemu.signals())
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
