package launcher

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
)

// A guest whose plug is pulled was destroyed, however its QEMU ends and libvirtd tells it.
func TestPlugIsPulled(t *testing.T) {
	type heard struct{ outcome hypervisor.Outcome }
	for name, test := range map[string]struct {
		// tells is how libvirtd tells that QEMU has heeded the signal; nil: QEMU does not.
		tells *heard
		// signalled is how QEMU's process answers.
		signalled error
		took      time.Duration
	}{
		"libvirtd sees a shutdown":     {&heard{hypervisor.Shutdown}, nil, heedLook},
		"libvirtd sees a crash":        {&heard{hypervisor.Crashed}, nil, heedLook},
		"libvirtd is first":            {&heard{hypervisor.Destroyed}, nil, heedLook},
		"QEMU hangs":                   {nil, nil, heed},
		"QEMU cannot be told":          {nil, os.ErrPermission, 0},
		"QEMU has ended, nobody knows": {nil, os.ErrProcessDone, 0},
	} {
		t.Run(name, func(t *testing.T) {
			withGuest(t, func(t *testing.T, m *memory, g *guest) {
				mustCreate(t, g)
				q := &qemu{err: test.signalled}
				q.hear = func(s os.Signal) {
					if s == syscall.SIGTERM && test.tells != nil {
						go func() {
							m.end(hypervisor.End{Outcome: test.tells.outcome, Reason: "as libvirtd has it"})
							q.mu.Lock()
							defer q.mu.Unlock()
							q.err = os.ErrProcessDone
						}()
					}
				}
				g.qemu = func() (process, error) { return q, nil }
				began := time.Now()
				g.shutdown(0)
				<-g.ended()
				expect(t, g, destroyed, "destroyed")
				if took := time.Since(began); took > test.took {
					t.Errorf("took %v", took)
				}
				if !slices.Contains(q.signals(), os.Signal(syscall.SIGTERM)) {
					t.Errorf("QEMU got %v", q.signals())
				}
			})
		})
	}
}
