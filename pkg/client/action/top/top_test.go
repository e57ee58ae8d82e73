package top

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/virtkit/virtkit/pkg/report/stats"
)

func reading(at time.Time, cpu map[string]uint64) stats.List {
	var list stats.List
	for name, used := range cpu {
		list.Items = append(list.Items, stats.Guest{
			Namespace: "default", Name: name, Node: "one", Time: at, CPUTime: used, VCPUs: 2,
			Memory:     stats.Memory{Guest: 1 << 30, Used: 1 << 20, Resident: used},
			Interfaces: []stats.Interface{{Name: "tap0", Received: used / 1000, Sent: used / 2000}},
			Disks:      []stats.Disk{{Name: "vda", Read: used / 4000}, {Name: "vdb", Written: used / 8000}},
		})
	}
	return list
}

func TestRates(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	before := reading(start, map[string]uint64{"busy": 1e9, "idle": 5e9, "restarted": 9e9, "stopped": 1e9})
	after := reading(start.Add(2*time.Second),
		map[string]uint64{"busy": 4e9, "idle": 5e9, "restarted": 1e9, "new": 1e9})
	after.Unreachable = []stats.Unreachable{{Node: "two", Error: "no"}}
	r := Rates(before, after)
	if err := r.Sort("cpu"); err != nil {
		t.Fatal(err)
	}
	if len(r.Items) != 2 || r.Items[0].Name != "busy" || r.Items[1].Name != "idle" || len(r.Unreachable) != 1 {
		t.Fatalf("%+v", r)
	}
	slices.Sort(r.Fresh)
	if !slices.Equal(r.Fresh, []string{"default/new", "default/restarted"}) {
		t.Errorf("without rates: %v", r.Fresh)
	}
	// A node may answer twice with one reading.
	if same := Rates(after, after); len(same.Items) != 0 || len(same.Fresh) != len(after.Items) {
		t.Errorf("the same reading twice: %+v", same)
	}
	want := Row{
		Namespace: "default", Name: "busy", Node: "one", CPU: 1500, VCPUs: 2, Memory: 1 << 30, MemoryUsed: 1 << 20,
		MemoryResident:  4e9,
		NetworkReceived: 1_500_000, NetworkSent: 750_000, DiskRead: 375_000, DiskWritten: 187_500,
	}
	if !reflect.DeepEqual(r.Items[0], want) {
		t.Errorf("%+v, want %+v", r.Items[0], want)
	}
	if r.Items[1].CPU != 0 || r.Items[1].NetworkReceived != 0 {
		t.Errorf("idle %+v", r.Items[1])
	}
}

func TestSort(t *testing.T) {
	r := &Report{Items: []Row{
		{Name: "a", CPU: 1, MemoryResident: 3, NetworkSent: 2, DiskRead: 9, Node: "z"},
		{Name: "b", CPU: 2, MemoryResident: 1, NetworkSent: 9, DiskRead: 1, Node: "y"},
		{Name: "c", CPU: 2, MemoryResident: 2, NetworkSent: 1, DiskRead: 5, Node: "y"},
	}}
	for by, want := range map[string]string{
		"cpu":     "bca",
		"memory":  "acb",
		"network": "bac",
		"disk":    "acb",
		"node":    "bca",
		"name":    "abc",
	} {
		if err := r.Sort(by); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, row := range r.Items {
			got += row.Name
		}
		if got != want {
			t.Errorf("by %s: %s, want %s", by, got, want)
		}
	}
	if r.Sort("colour") == nil {
		t.Error("sorted by colour")
	}
	if !slices.Contains(Keys(), "cpu") {
		t.Error(Keys())
	}
}

// A guest that did not answer one of the readings is named; one that is gone since is not.
func TestUnanswered(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	before := reading(start, map[string]uint64{"late": 1e9})
	before.Unanswered = []stats.Unanswered{{Namespace: "default", Name: "slow"}, {Namespace: "default", Name: "gone"}}
	after := reading(start.Add(time.Second), map[string]uint64{"slow": 1e9})
	after.Unanswered = []stats.Unanswered{{Namespace: "default", Name: "late"}}
	r := Rates(before, after)
	if err := r.Sort("cpu"); err != nil {
		t.Fatal(err)
	}
	want := []stats.Unanswered{{Namespace: "default", Name: "late"}, {Namespace: "default", Name: "slow"}}
	if len(r.Items) != 0 || !slices.Equal(r.Unanswered, want) {
		t.Errorf("%+v, want %+v unanswered", r, want)
	}
}

// A reading that comes twice is compared with the same one both times, and so no guest is left out.
func TestSeenTwice(t *testing.T) {
	at := func(second int) time.Time { return time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC) }
	s := seen{}
	s.before(reading(at(0), map[string]uint64{"a": 1e9, "b": 1e9}))
	for i, now := range []stats.List{
		reading(at(2), map[string]uint64{"a": 2e9, "b": 3e9}),
		reading(at(2), map[string]uint64{"a": 2e9, "b": 3e9}),
		reading(at(3), map[string]uint64{"a": 3e9, "b": 3e9, "c": 1e9}),
	} {
		r := Rates(s.before(now), now)
		if err := r.Sort("name"); err != nil {
			t.Fatal(err)
		}
		want := [][2]int64{{500, 1000}, {500, 1000}, {1000, 0}}[i]
		if len(r.Items) != 2 || r.Items[0].CPU != want[0] || r.Items[1].CPU != want[1] {
			t.Errorf("reading %d: %+v, want %v", i+1, r.Items, want)
		}
	}
}

// A guest that missed one answer has a row once it can be compared with what came before that, and only that.
func TestSeenAgain(t *testing.T) {
	at := func(second int) time.Time { return time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC) }
	s := seen{}
	s.before(reading(at(0), map[string]uint64{"a": 1e9}))
	missed := stats.List{Unanswered: []stats.Unanswered{{Namespace: "default", Name: "a"}}}
	s.before(missed)
	now := reading(at(2), map[string]uint64{"a": 3e9})
	was := s.before(now)
	was.Unanswered = missed.Unanswered
	if r := Rates(was, now); len(r.Items) != 1 || r.Items[0].CPU != 1000 || len(r.Unanswered)+len(r.Fresh) != 0 {
		t.Errorf("%+v", r)
	}
	s.before(stats.List{Unreachable: []stats.Unreachable{{Node: "one"}}})
	if len(s) != 1 {
		t.Error("a guest of a node that does not answer is forgotten")
	}
	if s.before(stats.List{}); len(s) != 0 {
		t.Errorf("a guest that has gone is kept: %v", s)
	}
}
