package images

import (
	"context"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// lock keeps other programs of this machine away from a file until unlock is called. The lock is a file beside it, with
// the suffix .lock, which stays. The end of the context ends the wait.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	type locked struct {
		unlock func()
		err    error
	}
	ended := make(chan locked, 1)
	go func() {
		unlock, err := lockedfile.MutexAt(path + ".lock").Lock()
		ended <- locked{unlock, err}
	}()
	select {
	case l := <-ended:
		return l.unlock, l.err
	case <-ctx.Done():
		go func() {
			if l := <-ended; l.err == nil {
				l.unlock()
			}
		}()
		return nil, ctx.Err()
	}
}
