//go:build !windows

package terminal

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Resizes calls changed whenever the terminal has got a new size, until ctx ends.
func (t *Terminal) Resizes(ctx context.Context, changed func(width, height int)) {
	if !t.is {
		return
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGWINCH)
	defer signal.Stop(signals)
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
			if width, height, ok := t.Size(); ok {
				changed(width, height)
			}
		}
	}
}
