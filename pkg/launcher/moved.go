package launcher

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/virtkit/virtkit/pkg/launcher/lifecycle"
)

const (
	// notHere is the reason for refusing a request for which there is no domain, and movedAway the one when it is
	// elsewhere.
	notHere   = "the guest does not run any more"
	movedAway = "the guest has moved to another node"
	// tryAgain is the advice when nothing was begun.
	tryAgain = "; try again"
)

// isElsewhere reports whether the guest was given to another launcher.
func (g *guest) isElsewhere() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.life.Now()
	return now == lifecycle.HandedOver || now == lifecycle.MigratedAway
}

// sayMoved changes an answer to virt-handler from "does not run" to "has moved": the guest has not ended, and a request
// that comes as it leaves can be made again.
func (g *guest) sayMoved(err error) error {
	answer, ok := status.FromError(err)
	if err == nil || !ok || !strings.Contains(answer.Message(), notHere) || !g.isElsewhere() {
		return err
	}
	text := strings.Replace(answer.Message(), notHere, movedAway, 1)
	if answer.Code() == codes.FailedPrecondition {
		text += tryAgain
	}
	return status.Error(answer.Code(), text)
}

// unaryMoved and streamMoved are sayMoved for every call.
func (g *guest) unaryMoved(
	ctx context.Context, request any, _ *grpc.UnaryServerInfo, answer grpc.UnaryHandler,
) (any, error) {
	response, err := answer(ctx, request)
	return response, g.sayMoved(err)
}

func (g *guest) streamMoved(
	service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, answer grpc.StreamHandler,
) error {
	return g.sayMoved(answer(service, stream))
}
