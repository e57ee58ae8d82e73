package handler

import (
	"context"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/virtkit/virtkit/pkg/handler/streams"
	"github.com/virtkit/virtkit/pkg/waits"
)

// dial makes a gRPC client on a connection that exists. Once it breaks, so does the client.
func dial(conn net.Conn) (*grpc.ClientConn, error) {
	once := make(chan net.Conn, 1)
	once <- conn
	return grpc.NewClient("passthrough:///launcher",
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a unix socket whose peer is known
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			select {
			case c := <-once:
				return c, nil
			default:
				return nil, errLost
			}
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithDisableServiceConfig(),
	)
}

// describe returns an error's text for users.
func describe(err error) string { return streams.Words(err) }

// backoff doubles the wait while errors stay of one kind. Their text does not count: it may have a time
// in it, or be a launcher's invention.
type backoff struct {
	last string
	wait func() time.Duration
}

func (b *backoff) next(err error) time.Duration {
	kind, first, most := grpcstatus.Code(err).String(), retryFirst, retryMost
	if errors.Is(err, errLost) {
		kind, first, most = "lost", retryFirst/10, reconnectMost
	}
	if kind != b.last {
		b.last, b.wait = kind, waits.Doubling(first, most)
	}
	return b.wait()
}
