package page

import (
	"math"
	"testing"
	"time"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/report/stats"
)

// reader reads guests that each use one processor, every two seconds.
type reader struct {
	*Usage
	start time.Time
	now   time.Time
}

func newReader() *reader {
	start := time.Unix(1000, 0)
	return &reader{NewUsage(), start, start}
}

func (r *reader) read(names ...string) stats.List {
	r.now = r.now.Add(Every)
	var list stats.List
	for _, name := range names {
		list.Items = append(list.Items, stats.Guest{
			Name: name, Node: "node-" + name, Time: r.now, CPUTime: uint64(r.now.Sub(r.start)),
		})
	}
	return list
}

func (r *reader) take(names ...string) { r.Take(r.read(names...), r.now) }

// drawn has a digit for each value of processors, and a point for each that is not known.
func (r *reader) drawn(name string) string {
	s := r.Of(store.Key{Name: name})
	if s == nil {
		return "none"
	}
	out := ""
	for _, v := range s.CPU {
		if math.IsNaN(v) {
			out += "."
		} else {
			out += string(rune('0' + int(v/1000+0.5)))
		}
	}
	return out
}

// TestUsageHasGaps leaves a gap as long as an outage, while it lasts and after it.
func TestUsageHasGaps(t *testing.T) {
	r := newReader()
	expect := func(want string) {
		t.Helper()
		if got := r.drawn("a"); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
	r.Miss(r.now) // before the first
	for range 3 {
		r.take("a")
	}
	expect("11")
	r.Miss(r.now)
	expect("11.")
	if s := r.Of(store.Key{Name: "a"}); !s.Missing() || s.says("9%") != "-" {
		t.Error("the last value is said to be that of now")
	}
	r.now = r.now.Add(4 * Every)
	r.Miss(r.now)
	expect("11....")
	r.now = r.now.Add(Every)
	r.take("a")
	expect("11.....1")
	r.now = r.now.Add(Every) // slow, and nothing failed
	r.take("a")
	expect("11.....11")
	r.now = r.now.Add(9 * Every) // nobody looked
	r.take("a")
	expect("11.....11.........1")
	if cpu, _, ok := r.Total(); !ok || cpu < 0.9 || cpu > 1.1 {
		t.Errorf("in all %f, %t", cpu, ok)
	}
	r.now = r.now.Add(time.Hour)
	r.Miss(r.now)
	if got := r.drawn("a"); len(got) != history {
		t.Errorf("keeps %d", len(got))
	}
}

// TestUsageOfGuestsThatDoNotAnswer keeps the graph of a guest that does not answer, and of one whose node does not,
// with gaps; the sums are without them. One that is gone is forgotten.
func TestUsageOfGuestsThatDoNotAnswer(t *testing.T) {
	r := newReader()
	r.take("a", "b", "c", "d")
	r.take("a", "b", "c", "d")
	list := r.read("a")
	list.Unanswered = []stats.Unanswered{{Name: "b"}}
	list.Unreachable = []stats.Unreachable{{Node: "node-c"}}
	r.Take(list, r.now)
	if cpu, _, _ := r.Total(); cpu < 0.9 || cpu > 1.1 {
		t.Errorf("the sum of one is %f", cpu)
	}
	r.take("a", "b", "c")
	for name, want := range map[string]string{"a": "111", "b": "1.1", "c": "1.1", "d": "none"} {
		if got := r.drawn(name); got != want {
			t.Errorf("%s: %q, not %q", name, got, want)
		}
	}
}

// TestLimitsStandBesideRates: each kind of device has its own.
func TestLimitsStandBesideRates(t *testing.T) {
	all := []string{"disk data: bps=1Mi", "disk root: iops=500", "interface default: in=10Mi"}
	for kind, want := range map[string]string{
		"disk ": " (limits data: bps=1Mi; root: iops=500)", "interface ": " (limits default: in=10Mi)", "gpu ": "",
	} {
		if got := limitsOf(all, kind); got != want {
			t.Errorf("%s: %q, want %q", kind, got, want)
		}
	}
}
