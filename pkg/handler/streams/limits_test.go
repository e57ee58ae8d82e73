package streams

import (
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/stream/quota"
)

// Streams beyond the limits are refused before the upgrade, with the time to ask again, and do not reach the guest.
func TestStreamsBeyondTheLimits(t *testing.T) {
	s := newSetup(t)
	s.server.quota.Limits = quota.Limits{PerVM: 2}
	serial := s.device(names.SocketSerial)
	first := s.dial("console")
	take(t, serial)
	s.dial("console?join=true")
	if _, err := s.dialName("demo/", "console?join=true"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("a third stream: %v", err)
	}
	response, err := http.Get(s.http.URL + "/v1/namespaces/default/virtualmachineinstances/demo/log/serial")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") == "" {
		t.Errorf("a log: %s, Retry-After %q", response.Status, response.Header.Get("Retry-After"))
	}
	if _, err := s.dialName("other/", "console"); apierrors.IsTooManyRequests(err) {
		t.Errorf("another guest's: %v", err)
	}
	first.Close()
	var again *stream.Conn
	for end := time.Now().Add(time.Minute); again == nil; {
		if again, err = s.dialName("demo/", "console?join=true"); err != nil && time.Now().After(end) {
			t.Fatalf("after one has ended: %v", err)
		}
	}
	again.Close()
}
