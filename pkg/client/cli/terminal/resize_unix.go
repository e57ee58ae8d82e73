//go:build !windows

package terminal

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Resizes calls changed whenever the terminal has got another size than Size reported last, until ctx ends.
func (t *Terminal) Resizes(ctx context.Context, changed func(width, height int)) {
	if !t.is {
		return
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGWINCH)
	defer signal.Stop(signals)
	for {
		t.resized(changed) // at first, for what changed before there was anybody to hear of it
		select {
		case <-ctx.Done():
			return
		case <-signals:
		}
	}
}
