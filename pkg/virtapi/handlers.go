package virtapi

import (
	"crypto/tls"
	"net/http"
	"sync"
	"time"
)

// handlers are the clients for requests to virt-handlers, one for each node: its connections are to that node's
// virt-handler and can be used for no other.
type handlers struct {
	config func(node string) *tls.Config

	mu      sync.Mutex
	clients map[string]*http.Client // by node
}

func newHandlers(config func(node string) *tls.Config) *handlers {
	return &handlers{config: config, clients: map[string]*http.Client{}}
}

// of returns the client for a node.
func (h *handlers) of(node string) *http.Client {
	h.mu.Lock()
	defer h.mu.Unlock()
	client := h.clients[node]
	if client == nil {
		if len(h.clients) >= maxHandlers {
			h.closeIdleLocked()
			clear(h.clients) // nodes come and go
		}
		client = &http.Client{Transport: &http.Transport{
			TLSClientConfig: h.config(node), MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute,
			ForceAttemptHTTP2: false,
		}}
		h.clients[node] = client
	}
	return client
}

// closeIdle closes the connections that nobody uses.
func (h *handlers) closeIdle() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closeIdleLocked()
}

func (h *handlers) closeIdleLocked() {
	for _, client := range h.clients {
		client.CloseIdleConnections()
	}
}
