package launcher

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/launcher/termination"
	"github.com/virtkit/virtkit/pkg/names"
)

// notes are the termination messages that a launcher has written ahead.
type notes struct {
	mu   sync.Mutex
	last termination.Message
	err  error
}

func (n *notes) note(t termination.Message) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err == nil {
		n.last = t
	}
	return n.err
}

func (n *notes) get() termination.Message {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last
}

// withHanded runs a test with a guest that the other launcher was asked to start.
func withHanded(t *testing.T, test func(t *testing.T, l *leaving, n *notes)) {
	t.Helper()
	withLeaving(t, func(t *testing.T, l *leaving) {
		n := &notes{}
		l.note = n.note
		l.standStill()
		l.sayArrived(t)
		if got := l.hear(t); got != wordRun {
			t.Fatalf("answer %q", got)
		}
		l.signals(t, syscall.SIGSTOP)
		if got := n.get(); got != handedOver {
			t.Errorf("termination message %+v", got)
		}
		test(t, l, n)
	})
}

// goesOn checks that the guest has its memory and runs here again, and that its migration failed.
func (l *leaving) goesOn(t *testing.T, n *notes) {
	t.Helper()
	l.signals(t, syscall.SIGSTOP, syscall.SIGCONT)
	if got := n.get(); got != (termination.Message{}) {
		t.Errorf("termination message %+v", got)
	}
	l.ends <- outcome{err: errors.New("client socket is closed")}
	time.Sleep(time.Second) // of the bubble
	expect(t, l.guest, runs, "unpaused")
	if m := expectMigration(t, l.guest, "a", didFail); m.Error != errNeverRan {
		t.Errorf("it failed for %q", m.Error)
	}
}

// The target's QEMU ends between "arrived" and "run": the guest goes on where its memory is.
func TestTargetDiesBeforeRun(t *testing.T) {
	withHanded(t, func(t *testing.T, l *leaving, n *notes) {
		l.say(t, wordDead)
		l.goesOn(t, n)
	})
}

// So it does when it is virt-handler who knows.
func TestTargetKnownToHaveNeverRun(t *testing.T) {
	withHanded(t, func(t *testing.T, l *leaving, n *notes) {
		l.other.Close()
		s := newService(t.Context(), Options{Log: l.log}, l.guest, nil)
		if _, err := s.TakeOver(t.Context(), &pb.TakeOverRequest{}); err != nil {
			t.Fatal(err)
		}
		l.goesOn(t, n)
	})
}

// As long as nobody knows whether the other one runs, the guest here does not: not when libvirt gives up, not when its
// user asks.
func TestHandedOverAndNoWord(t *testing.T) {
	withHanded(t, func(t *testing.T, l *leaving, _ *notes) {
		there := l.other
		l.redirect(func(context.Context, string) (net.Conn, error) { return nil, errors.New("no route") })
		there.Close()
		l.ends <- outcome{err: errors.New("client socket is closed")}
		time.Sleep(time.Hour) // of the bubble
		l.signals(t, syscall.SIGSTOP)
		expect(t, l.guest, paused, names.ReasonHandoff)
		expectMigration(t, l.guest, "a", underWay)
		s := newService(t.Context(), Options{Log: l.log}, l.guest, nil)
		if _, err := s.Unpause(t.Context(), &pb.UnpauseRequest{}); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("unpause: %v", err)
		}
		if err := l.cancelMigration(t.Context(), "a"); err != nil {
			t.Errorf("cancel: %v", err)
		}
		expectMigration(t, l.guest, "a", underWay)
		// The way is there again, and the other launcher has run the guest all the while.
		here, there := net.Pipe()
		l.redirect(func(context.Context, string) (net.Conn, error) { return here, nil })
		l.other = there
		time.Sleep(time.Second) // of the bubble
		l.say(t, wordRunning)
		l.signals(t, syscall.SIGSTOP, syscall.SIGKILL)
		expect(t, l.guest, migrated, "migrated")
	})
}

// A word that was lost is said again.
func TestRunIsSaidAgain(t *testing.T) {
	withHanded(t, func(t *testing.T, l *leaving, _ *notes) {
		l.other.Close()
		time.Sleep(2 * handoffRedial) // of the bubble
		synctest.Wait()
		l.say(t, wordArrived)
		if got := l.hear(t); got != wordRun {
			t.Errorf("answer %q", got)
		}
		l.say(t, wordRunning)
		l.signals(t, syscall.SIGSTOP, syscall.SIGKILL)
		l.ends <- outcome{err: errors.New("domain is not running")}
		expect(t, l.guest, migrated, "migrated")
	})
}

// A pod that is to end ends with the guest that it handed over, and its termination message still says that it did.
func TestHandedOverAndEnded(t *testing.T) {
	withHanded(t, func(t *testing.T, l *leaving, n *notes) {
		l.redirect(func(context.Context, string) (net.Conn, error) { return nil, errors.New("no route") })
		l.other.Close()
		l.shutdown(10 * time.Second)
		time.Sleep(5 * time.Second) // of the bubble
		l.signals(t, syscall.SIGSTOP)
		time.Sleep(6 * time.Second) // of the bubble
		l.signals(t, syscall.SIGSTOP, syscall.SIGKILL)
		l.ends <- outcome{err: errors.New("domain is not running")}
		expect(t, l.guest, migrated, "migrated")
		if got := n.get(); got != handedOver {
			t.Errorf("termination message %+v", got)
		}
	})
}

// withReceived runs a test with a launcher to which a guest has come, and which is asked over connections.
func withReceived(t *testing.T, test func(t *testing.T, m *memory, g *guest, n *notes, connect func() net.Conn)) {
	t.Helper()
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		n := &notes{}
		g.note = n.note
		s := newService(t.Context(), Options{Log: g.log}, g, nil)
		connections := make(listened, 1)
		done := make(chan struct{})
		go func() { s.serveSource(t.Context(), connections); close(done) }()
		connect := func() net.Conn {
			a, b := net.Pipe()
			connections <- b
			return a
		}
		first := connect()
		expectGuest(t, m, g, here)
		if word, err := readWord(first); err != nil || word != wordArrived {
			t.Fatalf("it says %q, %v", word, err)
		}
		if got := n.get(); got != neverRan {
			t.Errorf("termination message %+v", got)
		}
		test(t, m, g, n, func() net.Conn {
			if first != nil {
				conn := first
				first = nil
				return conn
			}
			return connect()
		})
		connections.Close()
		<-done
	})
}

// listened is a listener whose connections the test makes.
type listened chan net.Conn

func (l listened) Accept() (net.Conn, error) {
	if conn, ok := <-l; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (l listened) Close() error {
	defer func() { _ = recover() }() // closed before
	close(l)
	return nil
}
func (listened) Addr() net.Addr { return nil }

// A QEMU that ends before "run" comes: the source hears so, and so does who reads the termination message.
func TestReceivedAndNeverRan(t *testing.T) {
	for name, ran := range map[string]bool{"before the word": false, "after it": true} {
		t.Run(name, func(t *testing.T) {
			withReceived(t, func(t *testing.T, m *memory, g *guest, n *notes, connect func() net.Conn) {
				conn := connect()
				m.end(hypervisor.End{Outcome: hypervisor.Crashed, Reason: "failed"})
				if ran {
					go func() { _, _ = io.WriteString(conn, wordRun+"\n") }()
				}
				if word, err := readWord(conn); err != nil || word != wordDead {
					t.Fatalf("it says %q, %v", word, err)
				}
				conn.Close()
				if again := connect(); !ran {
					if word, err := readWord(again); err != nil || word != wordDead {
						t.Fatalf("it says %q, %v", word, err)
					}
					again.Close()
				} else {
					again.Close()
				}
				time.Sleep(2 * neverRanPatience) // of the bubble
				expect(t, g, crashed, names.ReasonNeverRan)
				if got := n.get(); got != neverRan {
					t.Errorf("termination message %+v", got)
				}
			})
		})
	}
}

// Before the guest can write to its disks here, nothing says any more that it never ran.
func TestNeverRanIsTakenBack(t *testing.T) {
	withReceived(t, func(t *testing.T, _ *memory, g *guest, n *notes, connect func() net.Conn) {
		conn := connect()
		n.mu.Lock()
		n.err = errors.New("no space")
		n.mu.Unlock()
		if _, err := io.WriteString(conn, wordRun+"\n"); err != nil {
			t.Fatal(err)
		}
		if word, err := readWord(conn); err == nil {
			t.Fatalf("it says %q", word)
		}
		expect(t, g, none, "")
		n.mu.Lock()
		n.err = nil
		n.mu.Unlock()
		conn = connect() // the source asks again
		if word, err := readWord(conn); err != nil || word != wordArrived {
			t.Fatalf("it says %q, %v", word, err)
		}
		if _, err := io.WriteString(conn, wordRun+"\n"); err != nil {
			t.Fatal(err)
		}
		if word, err := readWord(conn); err != nil || word != wordRunning {
			t.Fatalf("it says %q, %v", word, err)
		}
		expect(t, g, runs, "unpaused")
		if got := n.get(); got != (termination.Message{}) {
			t.Errorf("termination message %+v", got)
		}
	})
}
