package launcher

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
)

// TestRequestsOfMovedGuest: who asks something of a guest that has just left is told that it is elsewhere, by every
// kind of call; of one that has ended, that it has.
func TestRequestsOfMovedGuest(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		ends := migrating(m)
		asks := func(gone error) map[string]error {
			_, unary := g.unaryMoved(t.Context(), nil, nil,
				func(context.Context, any) (any, error) { return nil, gone })
			return map[string]error{"unary": unary, "stream": g.streamMoved(nil, nil, nil,
				func(any, grpc.ServerStream) error { return gone })}
		}
		mustCreate(t, g)
		for kind, err := range asks(agentStatus(hypervisor.ErrNoDomain)) {
			if status.Convert(err).Message() != notHere || status.Code(err) != codes.FailedPrecondition {
				t.Errorf("%s, of a guest that was not given away: %v", kind, err)
			}
		}
		mustLeave(t, g, "a")
		ends <- outcome{}
		expectMigration(t, g, "a", completed)
		for want, of := range map[*status.Status]error{
			status.New(codes.FailedPrecondition, movedAway+tryAgain): agentStatus(hypervisor.ErrNoDomain),
			// A command that was begun must not be run again unseen.
			status.New(codes.DataLoss, movedAway): lost(agentStatus(hypervisor.ErrNoDomain)),
		} {
			for kind, err := range asks(of) {
				if status.Convert(err).String() != want.String() {
					t.Errorf("%s: %v, want %s", kind, err, want)
				}
			}
		}
		for kind, err := range asks(agentStatus(hypervisor.ErrNoAgent)) {
			if strings.Contains(err.Error(), movedAway) {
				t.Errorf("%s, of a guest without an agent: %v", kind, err)
			}
		}
		for kind, err := range asks(nil) {
			if err != nil {
				t.Errorf("%s, of what was answered: %v", kind, err)
			}
		}
	})
}

// TestCommandOfMovedGuest: a command that runs while its guest moves is lost, not ended. The agent does not answer
// while the guest is stopped for the target, and libvirt may say that the domain is gone before the migration is seen
// to end.
func TestCommandOfMovedGuest(t *testing.T) {
	for name, tc := range map[string]struct {
		fails error
		want  string
	}{
		"moved":  {want: goesOn},
		"failed": {errors.New("the guest has crashed"), "the guest has ended, and the command with it"},
	} {
		t.Run(name, func(t *testing.T) {
			withGuest(t, func(t *testing.T, m *memory, g *guest) {
				m.agent = func(string) (string, error) { return `{"return":{"exited":false}}`, nil }
				ends := migrating(m)
				mustCreate(t, g)
				mustLeave(t, g, "a")
				s := newService(t.Context(), Options{Log: g.log}, g, nil)
				answer := make(chan error)
				go func() {
					_, err := s.awaitProgram(t.Context(), 1)
					answer <- err
				}()
				m.change(func(d *hypervisor.Domain) { d.Run, d.Reason = hypervisor.Paused, "migration" })
				time.Sleep(10 * time.Second) // of the bubble
				if tc.fails != nil {
					m.end(hypervisor.End{Outcome: hypervisor.Crashed, Reason: "crashed"})
				}
				ends <- outcome{err: tc.fails}
				if got := status.Convert(<-answer).Message(); got != tc.want {
					t.Errorf("%s, want %s", got, tc.want)
				}
			})
		})
	}
}
