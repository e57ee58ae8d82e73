package tpmstate

import (
	"context"
	"fmt"
	"time"

	"github.com/fsnotify/fsnotify"
)

// retry is the pause after a copy that failed.
const retry = time.Second

// Follow copies each change of the state until ctx ends. failed hears of copies that do not succeed, which are tried
// again.
func (s Store) Follow(ctx context.Context, failed func(error)) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch the TPM's state: %w", err)
	}
	defer watcher.Close()
	if err := watcher.Add(s.Local); err != nil {
		return fmt.Errorf("watch the TPM's state: %w", err)
	}
	for {
		var again <-chan time.Time
		if err := s.Save(ctx); err != nil && ctx.Err() == nil {
			failed(err)
			again = time.After(retry)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-watcher.Events:
			drain(watcher.Events)
		case err := <-watcher.Errors:
			failed(err)
		}
	}
}

// drain takes the events that come with the first: swtpm writes another file and renames it.
func drain(events <-chan fsnotify.Event) {
	for {
		select {
		case <-events:
		default:
			return
		}
	}
}
