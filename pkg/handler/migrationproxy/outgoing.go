package migrationproxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/stream"
)

// maxConnections bounds the connections of one migration at a time; a launcher that a guest has taken over
// cannot use up the node's.
const maxConnections = 64

// Outgoing are the sockets of a guest that leaves this node.
type Outgoing struct {
	cancel    context.CancelFunc
	listeners []*net.UnixListener
	active    sync.WaitGroup
}

// Listen makes the sockets of a migration in the launcher's run directory and connects their clients to the
// virt-handler at address. guards tells that one what the guest may say of itself on its networks, JSON of
// network.Plan.Guards; "" tells it nothing.
func Listen(
	run Run, dial Dial, address string, uid types.UID, guards string, log *slog.Logger,
) (*Outgoing, error) {
	ctx, cancel := context.WithCancel(context.Background())
	o := &Outgoing{cancel: cancel}
	slots := make(chan struct{}, maxConnections)
	for channel, socket := range sockets {
		listener, err := run.Listen(socket.from)
		if err != nil {
			o.Close()
			return nil, fmt.Errorf("make the migration's socket: %w", err)
		}
		o.listeners = append(o.listeners, listener)
		o.active.Go(func() {
			for {
				local, err := listener.Accept()
				if err != nil {
					if !errors.Is(err, net.ErrClosed) {
						log.Warn("migration: no more connections are taken", "migration", uid, "channel",
							channel, "err", err)
					}
					return
				}
				select {
				case slots <- struct{}{}:
				default:
					local.Close()
					continue
				}
				o.active.Go(func() {
					defer func() { <-slots }()
					if err := pass(ctx, local, dial, address, uid, channel, guards); err != nil && ctx.Err() == nil {
						log.Info("migration: connection ended", "migration", uid, "channel", channel, "err", err)
					}
				})
			}
		})
	}
	return o, nil
}

func pass(
	ctx context.Context, local net.Conn, dial Dial, address string, uid types.UID, channel Channel, guards string,
) error {
	defer local.Close()
	remote, err := connect(ctx, dial, address, uid, channel, guards)
	if err != nil {
		return err
	}
	defer remote.Close()
	if err := stream.Splice(ctx, whole(local, channel), whole(remote, channel)); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Close ends the migration's connections and waits for them.
func (o *Outgoing) Close() {
	o.cancel()
	for _, listener := range o.listeners {
		listener.Close() // ends Accept; the socket goes with the pod
	}
	o.active.Wait()
}
