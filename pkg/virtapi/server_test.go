package virtapi

import (
	"strings"
	"testing"
)

// A stream that counted as an ordinary request would have a deadline, and a few hundred of them would leave no room for
// the requests of others.
func TestStreamsAreLongRunning(t *testing.T) {
	streams := 0
	for _, e := range new(requests).endpoints() {
		if !strings.Contains(e.doc, "websocket") {
			continue
		}
		streams++
		subresource, _, _ := strings.Cut(e.subresource, "/")
		if !streaming.Has(subresource) {
			t.Errorf("%s is not among the streams", e.name())
		}
	}
	if streams < 4 {
		t.Errorf("%d streams", streams)
	}
}
