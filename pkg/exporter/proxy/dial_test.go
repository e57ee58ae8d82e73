package proxy

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"
)

// A server that is refused at first is reached; one that stays away is given up, also when nobody waits any more.
func TestPatiently(t *testing.T) {
	for name, tc := range map[string]struct {
		refused int
		within  time.Duration
		ended   bool
		tries   int
	}{
		"at once": {0, time.Minute, false, 1},
		"late":    {2, time.Minute, false, 3},
		"never":   {9, 0, false, 1},
		"left":    {9, time.Minute, true, 1},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		if tc.ended {
			cancel()
		}
		tries := 0
		conn, err := patiently(func(context.Context, string, string) (net.Conn, error) {
			if tries++; tries <= tc.refused {
				return nil, syscall.ECONNREFUSED
			}
			near, far := net.Pipe()
			t.Cleanup(func() { _, _ = near.Close(), far.Close() })
			return near, nil
		}, tc.within, 10*time.Millisecond)(ctx, "tcp", "e:1")
		cancel()
		if tries != tc.tries || (conn == nil) != (tc.refused > 2) ||
			conn == nil && !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: %d tries, %v, %v", name, tries, conn, err)
		}
	}
}
