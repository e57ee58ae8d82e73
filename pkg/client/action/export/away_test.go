//go:build linux

package export

import (
	"bytes"
	"context"
	"net"
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
		result, err := download(nil).Run(t.Context(), c, &output{})
		if tc.wrong == "" && (err != nil || result.Bytes == 0) {
			t.Errorf("%s: %d bytes, %v", name, result.Bytes, err)
		}
		if tc.wrong != "" && (err == nil || !strings.Contains(err.Error(), tc.wrong)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// unreached is a cluster whose API server leads to no pod at first.
type unreached struct {
	*cluster
	refused int
}

func (c *unreached) PodPort(ctx context.Context, namespace, pod string, port uint16) (net.Conn, error) {
	if c.refused > 0 {
		c.refused--
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	return c.cluster.PodPort(ctx, namespace, pod, port)
}

// An API server that goes away between the word that the export is ready and the first byte may be back within the
// patience, before the connection is there and while its server reads the disk.
func TestAwayBeforeTheFirstByte(t *testing.T) {
	for name, tc := range map[string]struct {
		refused  int
		cuts     []int64
		patience time.Duration
		wrong    string
	}{
		"no connection":      {refused: 3, patience: time.Minute},
		"cut":                {cuts: []int64{0, 1000}, patience: time.Minute},
		"longer than it may": {refused: 1 << 20, patience: 100 * time.Millisecond, wrong: "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &unreached{cluster: newCluster(t), refused: tc.refused}
			c.cuts = tc.cuts
			want := c.write(disk)
			out := &output{}
			_, err := download(func(d *Download) { d.Raw, d.Patience = true, tc.patience }).Run(t.Context(), c, out)
			if tc.wrong == "" && (err != nil || !bytes.Equal(out.Bytes(), want)) {
				t.Errorf("%d bytes, %v", out.Len(), err)
			}
			if tc.wrong != "" && (err == nil || !strings.Contains(err.Error(), tc.wrong) ||
				strings.Contains(err.Error(), "example.com")) {
				t.Errorf("%v", err)
			}
		})
	}
}
