package launcher

import (
	"context"
	"strings"
	"testing"

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
