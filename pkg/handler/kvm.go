package handler

import (
	"context"

	"github.com/virtkit/virtkit/pkg/service/config"
)

// offerKVM offers the node's KVM to as many guests as the configuration says. run is the device plugin; it is started
// anew when the number changes, since the kubelet is notified once.
func offerKVM(ctx context.Context, follower *config.Follower, run func(ctx context.Context, guests int) error) error {
	changed := make(chan struct{}, 1)
	follower.OnChange(func() {
		select {
		case changed <- struct{}{}:
		default: // one look will do
		}
	})
	return whileSame(ctx, changed, func() int { return follower.Current().InstancesPerNode }, run)
}

// whileSame runs something with a value, and anew with the next one when it is another. It ends as run does, or with
// the context.
func whileSame(
	ctx context.Context, changed <-chan struct{}, value func() int, run func(ctx context.Context, value int) error,
) error {
	for ctx.Err() == nil {
		is := value()
		inner, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- run(inner, is) }()
		for again := false; !again; {
			select {
			case err := <-done:
				stop()
				return err
			case <-changed:
				again = value() != is
			}
		}
		stop()
		if err := <-done; err != nil {
			return err
		}
	}
	return nil
}
