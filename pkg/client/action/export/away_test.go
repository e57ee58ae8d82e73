//go:build linux

package export

import (
	"context"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"kubevirt.io/api/export/v1beta1"
)

// awayCluster is a cluster whose API server does not answer some reads, and whose export is ready in the end.
type awayCluster struct {
	*cluster
	reads int
	// away are the reads of the export that have no answer, the first is 1; ready is the read from which it is ready.
	away  []int
	ready int
}

func (c *awayCluster) Read(ctx context.Context, path string, query url.Values, into any) error {
	export, ok := into.(*v1beta1.VirtualMachineExport)
	if !ok {
		return c.cluster.Read(ctx, path, query, into)
	}
	c.reads++
	for _, n := range c.away {
		if n == c.reads {
			return &url.Error{Op: "Get", URL: path, Err: syscall.ECONNREFUSED}
		}
	}
	if err := c.cluster.Read(ctx, path, query, into); err != nil {
		return err
	}
	if c.reads < c.ready {
		export.Status.Phase = v1beta1.Pending
	}
	return nil
}

// An API server that has answered may be away while the export is waited for; one that never has is not waited for.
func TestAwayWhileWaiting(t *testing.T) {
	for name, tc := range map[string]struct {
		away  []int
		wrong string
	}{
		"after an answer": {[]int{2, 3}, ""},
		"from the first":  {[]int{1}, "connection refused"},
	} {
		c := &awayCluster{cluster: newCluster(t), away: tc.away, ready: 5}
		c.write(disk)
		result, err := download(func(d *Download) { d.Readiness = 5 * time.Second }).Run(t.Context(), c, &output{})
		if tc.wrong == "" && (err != nil || result.Bytes == 0) {
			t.Errorf("%s: %d bytes, %v", name, result.Bytes, err)
		}
		if tc.wrong != "" && (err == nil || !strings.Contains(err.Error(), tc.wrong)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
