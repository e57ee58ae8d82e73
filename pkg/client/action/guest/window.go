package guest

import "sync"

// mostUnderWay is how much of a file is on its way to the guest at most, bytes. Proxies take much more than a slow
// guest does in a minute, and all of it would still be written after an interruption.
const mostUnderWay = 1 << 20

// window holds a sender back until the guest has taken what went before.
type window struct {
	mu      sync.Mutex
	changed *sync.Cond
	done    int64 // bytes that the guest has taken
	ended   bool
}

func newWindow() *window {
	w := &window{}
	w.changed = sync.NewCond(&w.mu)
	return w
}

// enter waits until all of the file up to there may be on its way; false says that the copy has ended.
func (w *window) enter(upTo int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.ended && upTo-w.done > mostUnderWay {
		w.changed.Wait()
	}
	return !w.ended
}

// taken records how many bytes the guest has taken so far.
func (w *window) taken(bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = max(w.done, bytes)
	w.changed.Broadcast()
}

func (w *window) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.changed.Broadcast()
}
