package launcher

import (
	"context"
	"sync"
	"testing"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
)

// The end of a domain that could not be created may be heard of when it was looked for the next one just before that
// was there.
func TestLateEndSeenWhileCreating(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		created, taken := make(chan struct{}), make(chan bool)
		m.onCreate = func() {
			looks := make(chan struct{})
			conn := firstLook{Connection: m.conn, first: &sync.Once{}, happens: func() { close(looks); <-created }}
			end := hypervisor.End{Outcome: hypervisor.Crashed, Reason: "failed"}
			go func() { taken <- g.end(t.Context(), conn, end) }()
			<-looks
		}
		mustCreate(t, g)
		close(created)
		if <-taken {
			t.Error("it is taken for the guest's end")
		}
		expect(t, g, runs, "booted")
	})
}

// firstLook answers the first question for the domain by what it was before something happened.
type firstLook struct {
	hypervisor.Connection
	first   *sync.Once
	happens func()
}

func (l firstLook) Domain(ctx context.Context) (d hypervisor.Domain, err error) {
	first := false
	l.first.Do(func() { first = true; l.happens() })
	if first {
		return d, hypervisor.ErrNoDomain
	}
	return l.Connection.Domain(ctx)
}
