package forward

import (
	"context"
	"errors"
	"sync"
)

// Serve forwards the local ports until ctx ends. An error is one of a local port, and ends all.
func (f *Forwarder) Serve(ctx context.Context, locals []*Local) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(locals))
	var ports sync.WaitGroup
	for i, l := range locals {
		ports.Go(func() {
			if l.packets != nil {
				errs[i] = f.ServeUDP(ctx, l.packets, l.Remote)
			} else {
				errs[i] = f.ServeTCP(ctx, l.listener, l.Remote)
			}
			cancel()
		})
	}
	ports.Wait()
	return errors.Join(errs...)
}
