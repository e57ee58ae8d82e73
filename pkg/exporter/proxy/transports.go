package proxy

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// idle is how long a connection that nobody uses is kept, and a transport after its last use.
	idle = time.Minute
	// maxTransports bounds how many exports have connections that are kept.
	maxTransports = 64
)

// transports keeps connections to the servers of exports, so that a download by ranges does not begin each anew.
type transports struct {
	mu   sync.Mutex
	kept map[string]*keptTransport
}

type keptTransport struct {
	*http.Transport
	used time.Time
}

// of returns the transport to an export's server.
func (t *transports) of(
	dial func(ctx context.Context, network, address string) (net.Conn, error), host, authority string,
) (*http.Transport, error) {
	key, now := keyOf(host, authority), time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if kept := t.kept[key]; kept != nil {
		kept.used = now
		return kept.Transport, nil
	}
	made, err := newTransport(dial, host, authority)
	if err != nil {
		return nil, err
	}
	t.forget(now)
	if t.kept == nil {
		t.kept = map[string]*keptTransport{}
	}
	t.kept[key] = &keptTransport{made, now}
	return made, nil
}

// forget drops transports that are not used, and the one that was used longest ago when there are too many. Requests
// under way go on.
func (t *transports) forget(now time.Time) {
	oldest := ""
	for key, kept := range t.kept {
		if now.Sub(kept.used) > idle {
			kept.CloseIdleConnections()
			delete(t.kept, key)
			continue
		}
		if oldest == "" || kept.used.Before(t.kept[oldest].used) {
			oldest = key
		}
	}
	if len(t.kept) >= maxTransports {
		t.kept[oldest].CloseIdleConnections()
		delete(t.kept, oldest)
	}
}
