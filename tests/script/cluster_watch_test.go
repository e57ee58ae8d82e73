package script

import (
	"encoding/json"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type watcher struct {
	resource string
	match    func(metav1.Object) bool
	events   chan []byte
}

// removal is an object that was deleted. A watch that begins after a list before it is sent it.
type removal struct {
	resource string
	version  int
	object   metav1.Object
}

func (c *cluster) notify(kind, resource string, o metav1.Object) {
	data := encodeEvent(kind, o)
	for w := range c.watchers {
		if w.resource == resource && w.match(o) {
			w.events <- data
		}
	}
}

func encodeEvent(kind string, o metav1.Object) []byte {
	data, err := json.Marshal(map[string]any{"type": kind, "object": o})
	if err != nil {
		panic(err)
	}
	return data
}

// watch sends what happens from now on, after what has happened since the version that the client knows.
func (c *cluster) watch(w http.ResponseWriter, r *http.Request, resource string, match func(metav1.Object) bool) {
	watch := &watcher{resource: resource, match: match, events: make(chan []byte, 100)}
	c.mu.Lock()
	known := r.URL.Query().Get("resourceVersion")
	for _, gone := range c.removals {
		if known != "" && gone.resource == resource && match(gone.object) &&
			newer(fmt.Sprint(gone.version), known) {
			watch.events <- encodeEvent("DELETED", gone.object)
		}
	}
	for _, o := range c.objects[resource] {
		if match(o) && newer(o.GetResourceVersion(), known) {
			watch.events <- encodeEvent("MODIFIED", o)
		}
	}
	c.watchers[watch] = true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.watchers, watch)
		c.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case data := <-watch.events:
			if _, err := w.Write(append(data, '\n')); err != nil {
				return
			}
			w.(http.Flusher).Flush()
		}
	}
}

func newer(a, b string) bool {
	return len(a) > len(b) || len(a) == len(b) && a > b
}
