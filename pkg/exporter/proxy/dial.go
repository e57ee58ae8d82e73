package proxy

import (
	"context"
	"net"
	"time"
)

// settling is how long the cluster may take to know a Service whose pod has become ready: its DNS, and the rules of its
// nodes, are some moments late. again is the time between two tries.
const settling, again = 5 * time.Second, 200 * time.Millisecond

type dial = func(ctx context.Context, network, address string) (net.Conn, error)

// patiently tries to reach an address again, for as long as the cluster may not know it yet.
func patiently(reach dial, within, pause time.Duration) dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		for end := time.Now().Add(within); ; {
			conn, err := reach(ctx, network, address)
			if err == nil || !time.Now().Before(end) {
				return conn, err
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return nil, err
			}
		}
	}
}
