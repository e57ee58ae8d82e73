//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	corev1 "k8s.io/api/core/v1"
)

// clientInNode is an HTTP client whose connections start in the network namespace of the pod's node, as those of a
// process of that node would: Services work there. The node is found as the network namespace of the process that
// runs the pod's node, PID 1 of the PID namespace that the host-PID pod sees.
func (c *cluster) clientInNode(t *testing.T, hostPIDPod corev1.Pod) *http.Client {
	t.Helper()
	found := processes(t, string(hostPIDPod.UID))
	if len(found) == 0 {
		t.Fatalf("pod %s has no process", hostPIDPod.Name)
	}
	// /proc/<pid>/root/proc is the node's own view of processes, because the pod shares the node's PID namespace.
	path := fmt.Sprintf("/proc/%d/root/proc/1/ns/net", found[0].PID)
	for _, p := range found {
		if p.Command == "virt-server" {
			path = fmt.Sprintf("/proc/%d/root/proc/1/ns/net", p.PID)
		}
	}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		type result struct {
			conn net.Conn
			err  error
		}
		done := make(chan result, 1)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with this goroutine, and its namespace with it
			handle, err := netns.GetFromPath(path)
			if err != nil {
				done <- result{nil, err}
				return
			}
			defer handle.Close()
			if err := netns.Set(handle); err != nil {
				done <- result{nil, err}
				return
			}
			conn, err := (&net.Dialer{Timeout: 3 * time.Second}).DialContext(ctx, network, address)
			done <- result{conn, err}
		}()
		r := <-done
		return r.conn, r.err
	}
	return &http.Client{
		Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
	}
}
