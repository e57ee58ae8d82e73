package handler

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

// dog is a watchdog over a directory of launchers and an API server that is a list.
type dog struct {
	*watchdog
	now           time.Time
	cached, fresh []types.UID
	version       int // of etcd
	uid           types.UID
	token         string
	down          bool
	asked         []bool // whether each question was for fresh pods
	killed, shut  []types.UID
	said          []string
	returned      int
}

func newDog(t *testing.T, launchers ...string) *dog {
	t.Helper()
	dir := t.TempDir()
	for _, pod := range launchers {
		run := podfs.RunPath(dir, types.UID(pod))
		if err := os.MkdirAll(run, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(run, names.SocketLauncher), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "no-launcher"), 0o755); err != nil {
		t.Fatal(err)
	}
	d := &dog{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), version: 1000, uid: "cluster"}
	node := NewNode("node1", dir, t.TempDir(), t.TempDir(), slog.New(slog.DiscardHandler))
	node.Now = func() time.Time { return d.now }
	d.watchdog = &watchdog{
		node: node, log: node.Log,
		pods: func(_ context.Context, fresh bool) (podList, error) {
			d.asked = append(d.asked, fresh)
			list := podList{pods: d.cached, resourceVersion: strconv.Itoa(d.version)}
			switch {
			case d.down:
				return podList{}, errors.New("no route to host")
			case fresh:
				list.pods = d.fresh
			}
			return list, nil
		},
		cluster:   func(context.Context) (types.UID, error) { return d.uid, nil },
		kill:      func(pod types.UID) (int, error) { d.killed = append(d.killed, pod); return 1, nil },
		shutdown:  func(_ context.Context, pod types.UID) error { d.shut = append(d.shut, pod); return nil },
		back:      func() { d.returned++ },
		ended:     func(types.UID, string) {},
		held:      func(message string) { d.said = append(d.said, message) },
		confirmed: func() string { return d.token },
		heard:     d.now,
		seen:      history{file: filepath.Join(t.TempDir(), "seen.json")},
	}
	return d
}

// restart is a new virt-handler on the same node.
func (d *dog) restart(t *testing.T) {
	t.Helper()
	seen, err := loadHistory(d.seen.file)
	if err != nil {
		t.Fatal(err)
	}
	d.seen, d.reported, d.reportedAt = seen, "", time.Time{}
}

// knows makes the API server know these pods, at a resource version.
func (d *dog) knows(version int, pods ...types.UID) {
	d.version, d.cached, d.fresh = version, pods, pods
}

func (d *dog) looks(t *testing.T) {
	t.Helper()
	d.now = d.now.Add(disarmedPeriod)
	if err := d.look(t.Context(), false); err != nil {
		t.Fatal(err)
	}
}

// An etcd that was restored from a backup does not know the pods made since. Nobody removed them, and nothing is
// killed.
func TestWatchdogRestoredEtcd(t *testing.T) {
	cases := map[string]struct {
		version int
		uid     types.UID
		why     string
	}{
		"gone back":                  {500, "cluster", "gone back from resource version 1000 to 500"},
		"another cluster":            {5000, "other", "kube-system has UID other"},
		"restored with a bumped one": {1_000_000_900, "cluster", "leapt from resource version 1000"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := newDog(t, "a", "b")
			d.knows(1000, "a", "b")
			d.looks(t)
			d.restart(t)
			d.knows(c.version, "a")
			d.uid = c.uid
			d.looks(t)
			if d.killed != nil || d.shut != nil || len(d.said) != 1 || !strings.Contains(d.said[0], c.why) ||
				!strings.Contains(d.said[0], "does not know 1 guests") {
				t.Fatalf("killed %v, shut down %v, said %q", d.killed, d.shut, d.said)
			}
			d.looks(t)
			if len(d.said) != 1 {
				t.Errorf("it repeats itself: %q", d.said)
			}
			d.restart(t) // a virt-handler that starts anew has not forgotten
			d.looks(t)
			if d.killed != nil || len(d.said) != 2 {
				t.Fatalf("after a restart: killed %v, said %q", d.killed, d.said)
			}
			_, d.token, _ = strings.Cut(d.said[0], names.AnnotationRestored+"=")
			d.looks(t)
			if d.killed != nil || !slices.Equal(d.shut, []types.UID{"b"}) {
				t.Fatalf("confirmed: killed %v, shut down %v", d.killed, d.shut)
			}
			d.restart(t)
			d.version += 10
			d.looks(t) // its guest shuts down, and takes its time
			if d.killed != nil || len(d.shut) != 1 {
				t.Errorf("while it shuts down: killed %v, shut down %v", d.killed, d.shut)
			}
			d.fresh, d.cached = nil, nil // and now a's pod is removed
			d.version += 10
			d.looks(t)
			if !slices.Equal(d.killed, []types.UID{"a"}) {
				t.Errorf("a pod was removed from the restored cluster: killed %v", d.killed)
			}
		})
	}
}

// A restored cluster that knows all guests of the node is believed from then on.
func TestWatchdogRestoredEtcdKnowsAll(t *testing.T) {
	d := newDog(t, "a", "b")
	d.knows(1000, "a", "b")
	d.looks(t)
	d.knows(500, "a", "b")
	d.looks(t)
	if d.killed != nil || d.said != nil || d.seen.ResourceVersion != "500" {
		t.Fatalf("killed %v, said %q, %+v", d.killed, d.said, d.seen)
	}
	d.knows(510, "a")
	d.looks(t)
	if !slices.Equal(d.killed, []types.UID{"b"}) {
		t.Errorf("killed %v", d.killed)
	}
}

// The cache of one API server may be older than another's: it proves nothing, but a fresh answer does.
func TestWatchdogCacheIsStale(t *testing.T) {
	d := newDog(t, "a", "b")
	d.knows(1000, "a", "b")
	d.looks(t)
	d.version, d.cached = 900, []types.UID{"a"}
	d.pods = func(_ context.Context, fresh bool) (podList, error) {
		if fresh {
			return podList{pods: []types.UID{"a", "b"}, resourceVersion: "1100"}, nil
		}
		return podList{pods: d.cached, resourceVersion: "900"}, nil
	}
	d.looks(t)
	if d.killed != nil || d.said != nil || d.seen.ResourceVersion != "1100" {
		t.Errorf("killed %v, said %q, %+v", d.killed, d.said, d.seen)
	}
}

// A list is not judged without knowing whose it is.
func TestWatchdogUnknownCluster(t *testing.T) {
	d := newDog(t, "a")
	d.cluster = func(context.Context) (types.UID, error) { return "", errors.New("forbidden") }
	d.knows(1000)
	if err := d.look(t.Context(), true); err == nil || d.killed != nil {
		t.Errorf("%v, killed %v", err, d.killed)
	}
}

// One pod whose directory gives an odd answer does not save the others, and is not passed over in silence.
func TestWatchdogOddStat(t *testing.T) {
	d := newDog(t, "b")
	odd := podfs.RunPath(d.node.PodsDir, "a")
	if err := os.MkdirAll(filepath.Dir(odd), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Base(odd), odd); err != nil { // ELOOP
		t.Fatal(err)
	}
	d.knows(1000)
	if err := d.look(t.Context(), true); err == nil || !strings.Contains(err.Error(), "pod a") ||
		!slices.Equal(d.killed, []types.UID{"b"}) {
		t.Errorf("%v, killed %v", err, d.killed)
	}
}

// A launcher that has removed its socket is ended like any other.
func TestWatchdogWithoutSocket(t *testing.T) {
	d := newDog(t, "a")
	if err := d.node.plans.Save("a", &network.Plan{}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(podfs.RunPath(d.node.PodsDir, "a"), names.SocketLauncher)); err != nil {
		t.Fatal(err)
	}
	d.knows(1000)
	d.looks(t)
	if !slices.Equal(d.killed, []types.UID{"a"}) {
		t.Errorf("killed %v", d.killed)
	}
}

// A guest is ended when its pod is gone for certain, and at no other time.
func TestWatchdog(t *testing.T) {
	s := newDog(t, "a", "b")
	look := func(suspicious bool) {
		t.Helper()
		if err := s.look(t.Context(), suspicious); err != nil {
			t.Fatal(err)
		}
	}
	s.cached, s.fresh = []types.UID{"a", "b", "x"}, []types.UID{"a", "b"}
	look(false)
	if !slices.Equal(s.asked, []bool{false}) || s.killed != nil {
		t.Errorf("all is well: asked %v, killed %v", s.asked, s.killed)
	}
	s.cached = []types.UID{"a"} // a cache that is stale
	look(false)
	if !slices.Equal(s.asked, []bool{false, false, true}) || s.killed != nil {
		t.Errorf("the cache is stale: asked %v, killed %v", s.asked, s.killed)
	}
	s.fresh = []types.UID{"a"}
	look(false)
	if !slices.Equal(s.killed, []types.UID{"b"}) {
		t.Errorf("b is gone: killed %v", s.killed)
	}
	s.cached, s.fresh, s.asked, s.killed = []types.UID{"a", "b"}, []types.UID{"b"}, nil, nil
	look(true) // a pod was removed, which the cache does not know
	if !slices.Equal(s.asked, []bool{true}) || !slices.Equal(s.killed, []types.UID{"a"}) || s.returned != 0 {
		t.Errorf("a is gone: asked %v, killed %v", s.asked, s.killed)
	}
}

func TestWatchdogCutOff(t *testing.T) {
	s := newDog(t, "a", "b")
	s.fenceAfter = time.Minute
	s.cached, s.fresh = []types.UID{"a", "b"}, []types.UID{"a", "b"}
	if err := s.look(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	s.down = true
	s.now = s.now.Add(59 * time.Second)
	if err := s.look(t.Context(), false); err == nil || s.killed != nil || !s.armed {
		t.Errorf("cut off: %v, killed %v", err, s.killed)
	}
	s.now = s.now.Add(time.Second)
	if err := s.look(t.Context(), false); err == nil || !slices.Equal(s.killed, []types.UID{"a", "b"}) {
		t.Errorf("cut off for a minute: %v, killed %v", err, s.killed)
	}
	s.down, s.killed, s.fresh, s.cached = false, nil, []types.UID{"a"}, []types.UID{"a"}
	if err := s.look(t.Context(), false); err != nil || !slices.Equal(s.killed, []types.UID{"b"}) || s.returned != 1 ||
		s.armed {
		t.Errorf("back: %v, killed %v, returned %d", err, s.killed, s.returned)
	}
}

// A node without guests has nothing to ask, and its silence does not count for those that come.
func TestWatchdogIdle(t *testing.T) {
	s := newDog(t)
	s.fenceAfter = time.Minute
	s.down = true
	s.now = s.now.Add(time.Hour)
	if err := s.look(t.Context(), false); err != nil || s.asked != nil || !s.heard.Equal(s.now) {
		t.Errorf("%v, asked %v, heard %s", err, s.asked, s.heard)
	}
}

func TestWatchdogRuns(t *testing.T) {
	s := newDog(t, "a")
	ticks, waits, kick := make(chan time.Time), make(chan time.Duration), newSignal()
	s.tick = func(d time.Duration) <-chan time.Time { waits <- d; return ticks }
	s.kick = kick
	s.down = true
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	if got := <-waits; got != armedPeriod {
		t.Errorf("without an answer it waits %s", got)
	}
	s.down, s.cached = false, []types.UID{"a"}
	ticks <- time.Time{}
	if got := <-waits; got != disarmedPeriod {
		t.Errorf("after an answer it waits %s", got)
	}
	kick.call()
	<-waits
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !slices.Equal(s.asked, []bool{true, false, true}) || !slices.Equal(s.killed, []types.UID{"a"}) {
		t.Errorf("asked %v, killed %v", s.asked, s.killed)
	}
}
