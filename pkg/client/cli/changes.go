package cli

import (
	"net/http"
	"strings"
	"sync"
)

// changes is what a program knows of its changes of the cluster: factories that are made of one another share it.
type changes struct {
	mu sync.Mutex
	// first is called with the factory of the first change; nil for nothing.
	first func(*Factory)
	// by is the factory of the first change, nil before it.
	by *Factory
	// journaled is whether the journal has an entry of what was asked.
	journaled bool
}

// OnChange registers first, which is called with the factory of the cluster in question when that cluster has accepted
// the first request that changes something.
func (f *Factory) OnChange(first func(*Factory)) {
	f.changes.mu.Lock()
	defer f.changes.mu.Unlock()
	f.changes.first = first
}

// Journaled notes that the journal has an entry of what was asked.
func (f *Factory) Journaled() {
	f.changes.mu.Lock()
	defer f.changes.mu.Unlock()
	f.changes.journaled = true
}

// Unjournaled returns the factory whose cluster was changed first, nil where none was or the journal knows.
func (f *Factory) Unjournaled() *Factory {
	f.changes.mu.Lock()
	defer f.changes.mu.Unlock()
	if f.changes.journaled {
		return nil
	}
	return f.changes.by
}

// changed notes a change.
func (f *Factory) changed() {
	f.changes.mu.Lock()
	first := f.changes.by == nil
	if first {
		f.changes.by = f
	}
	call := f.changes.first
	f.changes.mu.Unlock()
	if first && call != nil {
		call(f)
	}
}

// noticing is a transport that notices accepted requests that change the cluster.
type noticing struct {
	next    http.RoundTripper
	factory *Factory
}

func (n noticing) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := n.next.RoundTrip(r)
	if err == nil && answer.StatusCode >= 200 && answer.StatusCode < 300 && changesCluster(r) {
		n.factory.changed()
	}
	return answer, err
}

// changesCluster reports whether a request, once it is accepted, leaves something changed. Reviews and expansions are
// questions that have a body.
func changesCluster(r *http.Request) bool {
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return false
	}
	for _, question := range []string{
		"/apis/authorization.k8s.io/", "/apis/authentication.k8s.io/", "/expand-vm-spec",
	} {
		if strings.Contains(r.URL.Path, question) {
			return false
		}
	}
	return r.URL.Query().Get("dryRun") == ""
}
