package launcher

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

// hurried switches the migration under way to post-copy, which libvirt does, or has not done yet.
func hurried(m *memory, g *guest, left bool) {
	g.setMode(postCopy)
	if left {
		m.change(func(d *hypervisor.Domain) { d.Run, d.Reason = hypervisor.Paused, "postcopy" })
	}
}

// A migration by post-copy that breaks off ends the guest, whose memory is on both nodes, and that is a failure.
func TestPostCopyFailed(t *testing.T) {
	const crashed = pb.Lifecycle_LIFECYCLE_CRASHED
	for name, breaks := range map[string]func(m *memory, ends chan<- outcome){
		"the connection is lost": func(_ *memory, ends chan<- outcome) { ends <- outcome{err: errors.New("no route")} },
		"QEMU dies here": func(m *memory, ends chan<- outcome) {
			m.end(hypervisor.End{Outcome: hypervisor.Crashed, Reason: "failed"})
			synctest.Wait()
			ends <- outcome{err: errors.New("domain is not running")}
		},
		"it was given up": func(m *memory, ends chan<- outcome) {
			m.end(hypervisor.End{Outcome: hypervisor.Destroyed, Reason: "destroyed"})
			synctest.Wait()
			ends <- outcome{err: errors.New("domain is not running")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			withGuest(t, func(t *testing.T, m *memory, g *guest) {
				ends := migrating(m)
				mustCreate(t, g)
				mustLeave(t, g, "a")
				hurried(m, g, true)
				expect(t, g, runs, "postcopy")
				breaks(m, ends)
				if got := expectMigration(t, g, "a", didFail); !strings.Contains(got.Error, "(post-copy)") {
					t.Errorf("migration %v", got)
				}
				state := g.snapshot()
				if state.Lifecycle != crashed || !strings.HasPrefix(state.Reason, "its migration failed: ") {
					t.Errorf("the guest is %v, %q", state.Lifecycle, state.Reason)
				}
				if m.domain != nil {
					t.Error("it is still here")
				}
			})
		})
	}
}

// One that breaks off before the guest has left leaves it where it is.
func TestPostCopyTooLate(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		ends := migrating(m)
		mustCreate(t, g)
		mustLeave(t, g, "a")
		hurried(m, g, false)
		ends <- outcome{err: errors.New("no route")}
		if got := expectMigration(t, g, "a", didFail); strings.Contains(got.Error, "post-copy") {
			t.Errorf("migration %v", got)
		}
		expect(t, g, runs, "booted")
		// How it ends later is its own.
		m.end(hypervisor.End{Outcome: hypervisor.Shutdown, Reason: "shutdown"})
		expect(t, g, pb.Lifecycle_LIFECYCLE_SHUTOFF, "shutdown")
	})
}
