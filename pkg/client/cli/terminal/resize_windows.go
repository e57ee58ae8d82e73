package terminal

import (
	"context"
	"time"
)

// poll is how often the size is looked at: Windows has no signal for it.
const poll = 250 * time.Millisecond

// Resizes calls changed whenever the terminal has got another size than Size reported last, until ctx ends.
func (t *Terminal) Resizes(ctx context.Context, changed func(width, height int)) {
	if !t.is {
		return
	}
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		t.resized(changed)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
