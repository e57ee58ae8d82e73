package terminal

import (
	"context"
	"time"
)

// poll is how often the size is looked at: Windows has no signal for it.
const poll = 250 * time.Millisecond

// Resizes calls changed whenever the terminal has got a new size, until ctx ends.
func (t *Terminal) Resizes(ctx context.Context, changed func(width, height int)) {
	if !t.is {
		return
	}
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	w, h, _ := t.Size()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if width, height, ok := t.Size(); ok && (width != w || height != h) {
				w, h = width, height
				changed(w, h)
			}
		}
	}
}
