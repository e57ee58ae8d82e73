package launcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	"github.com/virtkit/virtkit/pkg/launcher/lifecycle"
)

// errCancelled is the error of a migration that was cancelled before libvirt was asked to begin it.
var errCancelled = errors.New("cancelled before it began")

// abortPause is the pause between attempts to end a migration that libvirt is about to begin.
const abortPause = 20 * time.Millisecond

// cancelMigration ends the migration under way if it is uid. An error means that libvirt could not be asked
// to end it just now: it will be as soon as it can.
func (g *guest) cancelMigration(ctx context.Context, uid string) error {
	g.mu.Lock()
	// With post-copy the guest runs on the target already: without this one it ends. After the handoff it may run
	// there.
	ours := g.life.Now() == lifecycle.Migrating && g.state.Migration.GetUid() == uid &&
		g.state.Migration.Mode != postCopy
	if ours {
		g.migration.cancelled = true
	}
	g.mu.Unlock()
	if !ours {
		return nil
	}
	conn, err := g.connection(ctx)
	if err == nil {
		err = conn.AbortMigration(ctx)
	}
	if err != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		select {
		case g.migration.abort <- struct{}{}:
		default: // since the last time
		}
		return fmt.Errorf("cancel the migration: %w", err)
	}
	return nil
}

// migrationCancelled reports whether the migration under way was asked to end.
func (g *guest) migrationCancelled() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.migration.cancelled
}

// insist has libvirt end a migration that it was asked to end in vain: before it has begun there is nothing it could
// end, and a small guest would be gone before somebody asks again. It gives up when the migration is over (ctx).
func insist(ctx context.Context, conn hypervisor.Connection, asked <-chan struct{}) {
	select {
	case <-asked:
	case <-ctx.Done():
		return
	}
	for conn.AbortMigration(ctx) != nil {
		select {
		case <-time.After(abortPause):
		case <-ctx.Done():
			return
		}
	}
}
