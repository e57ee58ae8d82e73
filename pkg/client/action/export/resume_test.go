//go:build linux

package export

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"kubevirt.io/api/export/v1beta1"

	"github.com/virtkit/virtkit/pkg/exporter"
	"github.com/virtkit/virtkit/pkg/names"
)

// marked is an output that remembers where another run could go on, as a file does.
type marked struct {
	output
	point Point
	len   int
}

func (m *marked) Mark(p Point) error {
	m.point, m.len = p, m.Len()
	return nil
}

// ways are the ways in which a disk comes that another run can go on with.
var ways = map[string]func(*cluster, *Download){
	"gzip":     func(*cluster, *Download) {},
	"unpacked": func(_ *cluster, d *Download) { d.Raw = true },
	"raw": func(c *cluster, _ *Download) { // of a server that has no other format
		volume := &c.export.Status.Links.Internal.Volumes[0]
		volume.Formats = volume.Formats[:1]
	},
	"qcow2": func(_ *cluster, d *Download) { d.QCOW2 = true },
	"ova": func(c *cluster, d *Download) {
		d.OVA = true
		c.writeVM()
	},
}

// same compares what has come in one of the ways with the disk.
func (c *cluster) same(way string, got []byte) bool {
	c.t.Helper()
	want := c.content()
	switch way {
	case "gzip":
		got = unpacked(c.t, got)
	case "qcow2", "ova":
		path := map[string]string{"qcow2": "/volumes/root/disk.qcow2", "ova": names.ExportOVA}[way]
		request := httptest.NewRequest(http.MethodGet, path, nil)
		request.Header.Set(names.HeaderExportToken, token)
		answer := httptest.NewRecorder()
		c.server.Config.Handler.ServeHTTP(answer, request)
		want = answer.Body.Bytes()
	}
	return len(want) > 0 && bytes.Equal(got, want)
}

// A second run goes on with what the first has left, whatever it had, and both have the disk at the end.
func TestSecondRun(t *testing.T) {
	for name, way := range ways {
		c := newCluster(t)
		c.write(disk)
		for _, cut := range []int64{5 << 20, 6 << 20} {
			c.cuts, c.dials = []int64{cut}, 0
			out := &marked{}
			ctx, cancel := context.WithCancel(t.Context())
			c.cut = cancel // as if it was killed
			_, err := download(func(d *Download) { way(c, d) }).Run(ctx, c, out)
			if !errors.Is(err, context.Canceled) || !out.point.Valid() {
				t.Fatalf("%s: %v, at %+v", name, err, out.point)
			}
			left := &marked{}
			left.Write(out.Bytes()[:out.len])
			var first int64
			result, err := download(func(d *Download) {
				way(c, d)
				d.From = &out.point
				d.Show = func(done, _ int64) {
					if first == 0 {
						first = done
					}
				}
			}).Run(t.Context(), c, left)
			if err != nil || left.begun != 0 || first != out.point.Done {
				t.Errorf("%s: %+v, begun %d times, first at %d of %+v: %v", name, result, left.begun, first, out.point,
					err)
			}
			if !c.same(name, left.Bytes()) {
				t.Errorf("%s: %d bytes, not those of the disk", name, left.Len())
			}
		}
	}
}

// A run that has all, and was killed before it could say so, downloads nothing anew.
func TestSecondRunOfWhole(t *testing.T) {
	for name, way := range ways {
		c := newCluster(t)
		c.write(disk)
		out := &marked{}
		d := download(func(d *Download) { way(c, d) })
		if _, err := d.Run(t.Context(), c, out); err != nil {
			t.Fatal(err)
		}
		d.From = &out.point
		if result, err := d.Run(t.Context(), c, out); err != nil || result.Bytes != out.point.Size || out.begun != 1 {
			t.Errorf("%s: %+v, begun %d times: %v", name, result, out.begun, err)
		}
		if !c.same(name, out.Bytes()) {
			t.Errorf("%s: %d bytes", name, out.Len())
		}
	}
}

// A second run begins anew when the disk is another by then, or comes in another way.
func TestSecondRunOfAnother(t *testing.T) {
	for name, way := range ways {
		for _, change := range []func(*cluster, *Point){
			func(c *cluster, _ *Point) { c.write(disk) },
			func(c *cluster, _ *Point) { c.write(disk / 2) },
			func(_ *cluster, p *Point) { p.Format = v1beta1.ArchiveGz },
			func(_ *cluster, p *Point) { p.Tag = "" },
			func(_ *cluster, p *Point) { p.Done = p.Size + 1 },
		} {
			c := newCluster(t)
			c.write(disk)
			out := &marked{}
			d := download(func(d *Download) { way(c, d) })
			if _, err := d.Run(t.Context(), c, out); err != nil {
				t.Fatal(err)
			}
			point := out.point
			point.Done = 4 << 20
			change(c, &point)
			d.From = &point
			if _, err := d.Run(t.Context(), c, out); err != nil || out.begun != 2 {
				t.Errorf("%s: begun %d times: %v", name, out.begun, err)
			}
			if !c.same(name, out.Bytes()) {
				t.Errorf("%s: %d bytes", name, out.Len())
			}
		}
	}
}

// writeVM gives the export a VM, with the disk and a volume that no OVA has.
func (c *cluster) writeVM() {
	c.t.Helper()
	const vm = `{"items":[{"kind":"VirtualMachine","metadata":{"name":"vm"},"spec":{"template":{"spec":{"domain":{},
"volumes":[{"name":"root","persistentVolumeClaim":{"claimName":"root"}},{"name":"seed","emptyDisk":{}}]}}}}]}`
	if err := os.WriteFile(filepath.Join(filepath.Dir(c.disk), "all.json"), []byte(vm), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// A download outlives that its pod is evicted wherever another pod can say that the content is the same: of a device
// that a stopped VM has, an OVA can, which is measured anew, and a raw image cannot.
func TestEvicted(t *testing.T) {
	for name, tc := range map[string]struct {
		way, kind string
		changes   bool
	}{
		"OVA of a file":                {"ova", "disk", false},
		"OVA of a device":              {"ova", "device", false},
		"qcow2 of a file":              {"qcow2", "disk", false},
		"qcow2 of a device":            {"qcow2", "device", true},
		"OVA of a file that changes":   {"ova", "disk", true},
		"OVA of a device that changes": {"ova", "device", true},
	} {
		c := newCluster(t)
		c.write(disk)
		path := c.disk
		if tc.kind == "disk" {
			path = filepath.Dir(c.disk)
		}
		c.pod.Volumes = nil
		if err := c.pod.Add(tc.kind, "root="+path); err != nil {
			t.Fatal(err)
		}
		var now atomic.Value
		now.Store(exporter.NewHandler(c.pod))
		c.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			now.Load().(http.Handler).ServeHTTP(w, r)
		})
		c.cuts = []int64{5 << 20}
		c.cut = func() {
			now.Store(exporter.NewHandler(c.pod))
			if tc.changes && tc.way == "ova" {
				c.write(disk)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.export.Status.Conditions[0].LastTransitionTime = metav1.Unix(2, 0)
		}
		out := &output{}
		_, err := download(func(d *Download) { ways[tc.way](c, d) }).Run(t.Context(), c, out)
		switch {
		case tc.changes && (!errors.Is(err, ErrChanged) || out.begun != 1):
			t.Errorf("%s: begun %d times, %v", name, out.begun, err)
		case !tc.changes && (err != nil || out.begun != 1 || !c.same(tc.way, out.Bytes())):
			t.Errorf("%s: %d bytes, begun %d times: %v", name, out.Len(), out.begun, err)
		}
	}
}

// An OVA comes with what is not in it; an export of a claim, or of a server from before, has none.
func TestOVA(t *testing.T) {
	c := newCluster(t)
	c.write(disk)
	c.writeVM()
	out := &output{}
	ova := func(d *Download) { d.OVA = true }
	result, err := download(ova).Run(t.Context(), c, out)
	if err != nil || result.Format != "ova" || result.Bytes != int64(out.Len()) || !c.same("ova", out.Bytes()) ||
		len(result.NotIncluded) != 1 || !strings.HasPrefix(result.NotIncluded[0], "volume seed") {
		t.Errorf("%+v: %v", result, err)
	}
	manifests := &c.export.Status.Links.Internal.Manifests
	*manifests = (*manifests)[:2]
	if _, err := download(ova).Run(t.Context(), c, out); err == nil ||
		!strings.Contains(err.Error(), "is not served as OVA: it is of a claim") {
		t.Errorf("%v", err)
	}
}

func (c *cluster) content() []byte {
	c.t.Helper()
	data, err := os.ReadFile(c.disk)
	if err != nil {
		c.t.Fatal(err)
	}
	return data
}

// The ranges of a server that does not do what it is asked for are not taken for the rest of the disk.
func TestWrongRanges(t *testing.T) {
	for name, answer := range map[string]struct {
		serve http.HandlerFunc
		want  string
	}{
		"all of it": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"tag"`)
			_, _ = w.Write(make([]byte, disk))
		}, "sends all of the disk"},
		"another range": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"tag"`)
			w.Header().Set("Content-Range", "bytes 6-9/10")
			w.WriteHeader(http.StatusPartialContent)
		}, `sends "bytes 6-9/10", and was asked for "bytes 5-9/10"`},
		"too much": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"tag"`)
			w.Header().Set("Content-Range", "bytes 5-9/10")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(make([]byte, 6))
		}, "more than the 10 bytes"},
		"no such range": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		}, "416"},
	} {
		c := newCluster(t)
		ways["raw"](c, nil)
		c.server.Config.Handler = answer.serve
		_, err := download(func(d *Download) {
			d.From = &Point{Format: v1beta1.KubeVirtRaw, Tag: `"tag"`, Done: 5, Size: 10}
		}).Run(t.Context(), c, &marked{})
		if err == nil || !strings.Contains(err.Error(), answer.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// away is a cluster whose API server does not answer for a while after each cut.
type away struct {
	*cluster
	left int
}

func (a *away) Read(ctx context.Context, path string, query url.Values, into any) error {
	a.mu.Lock()
	a.left--
	lost := a.left >= 0
	a.mu.Unlock()
	if lost {
		return errors.New("connection refused")
	}
	return a.cluster.Read(ctx, path, query, into)
}

// A download that has begun outlives an API server that does not answer for a while, but not for longer than its
// patience. One that has not begun fails at once.
func TestOutage(t *testing.T) {
	for _, tc := range []struct {
		begun    bool
		patience time.Duration
		whole    bool
	}{{true, time.Minute, true}, {true, 0, false}, {false, time.Minute, false}} {
		c := &away{cluster: newCluster(t)}
		want := c.write(disk)
		if tc.begun {
			c.cuts = []int64{5 << 20}
			c.cut = func() { c.mu.Lock(); c.left = 20; c.mu.Unlock() }
		} else {
			c.left = 1
		}
		out := &marked{}
		_, err := download(func(d *Download) { d.Raw, d.Patience = true, tc.patience }).Run(t.Context(), c, out)
		if (err == nil) != tc.whole || tc.whole && !bytes.Equal(out.Bytes(), want) {
			t.Errorf("%+v: %d bytes: %v", tc, out.Len(), err)
		}
		if err != nil && (!strings.Contains(err.Error(), "connection refused") || errors.Is(err, ErrChanged)) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}

// What ends a download because its content may be two is known by ErrChanged, also behind other errors.
func TestChanged(t *testing.T) {
	c := newCluster(t)
	c.write(disk)
	c.cuts = []int64{5 << 20}
	c.cut = func() { c.write(disk) }
	_, err := download(nil).Run(t.Context(), c, &marked{})
	if !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), "the disk has changed since the download began") {
		t.Errorf("%v", err)
	}
}
