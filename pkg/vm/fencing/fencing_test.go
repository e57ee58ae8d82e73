package fencing

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// The inequalities that the proof in the package's comment rests on, and those that let a fence come about.
func TestTimes(t *testing.T) {
	for _, after := range []time.Duration{
		10 * time.Second, 40 * time.Second, 90 * time.Second, 10 * time.Minute, 24 * time.Hour,
	} {
		f, g, p, q := SilentFor(after), HealthyWithin(after), PollWithin(after), AskWithin(after)
		if safe := g + p + q*101/100; f*99/100 <= safe {
			t.Errorf("%s: a member may be silent and healthy: %s, %s", after, f, safe)
		}
		// Peers agree, and a check is over, before the launcher's time is.
		if late := f + f/100 + HeartbeatPeriod(after) + AskEvery(after) + q; late >= after*95/100 &&
			after >= 40*time.Second {
			t.Errorf("%s: peers answer after %s", after, late)
		}
		// A node that beats is healthy at each poll.
		if lag := 2*HeartbeatPeriod(after) + p; lag >= g {
			t.Errorf("%s: a healthy node is seen after %s, which is more than %s", after, lag, g)
		}
	}
	if got := Needed(100 * time.Second); got != 111*time.Second || Needed(0) != 0 {
		t.Errorf("needed: %s", got)
	}
}

// More than half must be silent for a peer check, half must be healthy for a count, and both at once cannot be.
func TestQuorum(t *testing.T) {
	for size := range MaxNodes + 1 {
		var set Set
		for i := range size {
			set = append(set, fmt.Sprintf("n%02d", i))
		}
		for silent := range size + 1 {
			ages := map[string]time.Duration{"stranger": time.Hour}
			for i := range silent {
				ages[set[i]] = time.Minute + time.Duration(i)*time.Second
			}
			agreed := set.Silence(ages) >= time.Minute
			if agreed != (2*silent > size) {
				t.Errorf("%d of %d are silent: %t", silent, size, agreed)
			}
			if counted := set.carried(size - silent); counted && agreed {
				t.Errorf("%d of %d are silent: agreed and counted", silent, size)
			} else if counted != (size >= MinNodes && 2*silent <= size) {
				t.Errorf("%d of %d are silent: counted %t", silent, size, counted)
			}
		}
	}
	if got := ParseSet(strings.Repeat("x,", MaxNodes) + "y"); got.Quorum() {
		t.Errorf("too large: %v", got)
	}
	// Of three, two have been silent for at least the second longest.
	set := ParseSet("c,a,,b,a")
	if got := set.Silence(map[string]time.Duration{"a": 5, "b": 9, "c": 1}); got != 5 || set.String() != "a,b,c" {
		t.Errorf("%v: %s", set, got)
	}
}

func TestChoose(t *testing.T) {
	var all []string
	for i := range 100 {
		all = append(all, fmt.Sprintf("n%02d", i))
	}
	before := Choose("n07", all)
	if len(before) != MaxNodes || !slices.Contains(before, "n07") || !slices.IsSorted(before) {
		t.Errorf("%v", before)
	}
	after := Choose("n07", append(slices.Clone(all), "new"))
	gone := slices.DeleteFunc(slices.Clone(before), func(name string) bool { return slices.Contains(after, name) })
	if len(gone) > 1 {
		t.Errorf("one node more changes %v", gone)
	}
	if other := Choose("n08", all); slices.Equal(before, other) {
		t.Error("all nodes have the same peers")
	}
	if got := Choose("a", nil); len(got) != 1 || got.Quorum() {
		t.Errorf("alone: %v", got)
	}
}

// world drives a Count with a node that is silent and two that beat.
type world struct {
	now     time.Duration
	version uint64
	beats   map[string]Member
	count   Count
}

const testAfter = 160 * time.Second // P is 10 s, G 70 s

func (w *world) beat(name string) {
	w.version++
	w.beats[name] = Member{Version: w.version, Taken: w.beats[name].Version}
}

func (w *world) poll(change func(*Poll)) time.Duration {
	p := Poll{
		Asked: w.now, Answered: w.now + time.Second, Beat: "x", Set: Set{"a", "b", "lost"},
		Members: map[string]Member{},
	}
	for name, m := range w.beats {
		p.Members[name] = m
	}
	if change != nil {
		change(&p)
	}
	return w.count.Observe(testAfter, p)
}

// step lets 8 s pass, in which the nodes beat.
func (w *world) step(beats ...string) {
	w.now += 8 * time.Second
	for _, name := range beats {
		w.beat(name)
	}
}

func TestCount(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Poll)
		beats  []string
		fail   bool
		jump   time.Duration
		steps  int
		want   bool // goes on
	}{
		"half are healthy":         {beats: []string{"a", "b"}, steps: 20, want: true},
		"one heartbeat is missing": {beats: []string{"a"}, steps: 3, want: true},
		"one node is silent":       {beats: []string{"a"}, steps: 12},
		"the API server was away":  {steps: 12},
		"a heartbeat":              {beats: []string{"a", "b"}, steps: 1, change: func(p *Poll) { p.Beat = "y" }},
		"paused":                   {beats: []string{"a", "b"}, steps: 1, change: func(p *Poll) { p.Paused = true }},
		"another set": {
			beats: []string{"a", "b"}, steps: 1, change: func(p *Poll) { p.Set = Set{"a", "b", "c", "lost"} },
		},
		"too small a set":    {beats: []string{"a", "b"}, steps: 1, change: func(p *Poll) { p.Set = Set{"a", "lost"} }},
		"no set":             {beats: []string{"a", "b"}, steps: 1, change: func(p *Poll) { p.Set = nil }},
		"a poll failed":      {beats: []string{"a", "b"}, steps: 1, fail: true},
		"a poll was late":    {beats: []string{"a", "b"}, steps: 1, jump: 2 * time.Second},
		"a node was deleted": {beats: []string{"a"}, steps: 12, change: func(p *Poll) { delete(p.Members, "b") }},
	} {
		w := &world{beats: map[string]Member{}}
		for range 6 {
			w.step("a", "b")
			w.poll(nil)
		}
		if w.poll(nil) == 0 {
			t.Fatalf("%s: it does not count", name)
		}
		if c.fail {
			w.count.Fail()
		}
		w.now += c.jump
		before, fell := time.Duration(0), false
		for range c.steps {
			w.step(c.beats...)
			got := w.poll(c.change)
			fell = fell || got <= before
			before = got
		}
		if fell == c.want {
			t.Errorf("%s: it goes on: %t", name, !fell)
		}
	}
}

// A heartbeat that the API server takes proves nothing until the node says that it heard so.
func TestUnacknowledgedHeartbeats(t *testing.T) {
	w := &world{beats: map[string]Member{}}
	w.step("a", "b")
	taken := w.version
	for range 30 {
		w.now += 8 * time.Second
		for _, name := range []string{"a", "b"} {
			w.version++
			w.beats[name] = Member{Version: w.version, Taken: taken}
		}
		if got := w.poll(nil); got != 0 {
			t.Fatalf("it counts %s", got)
		}
	}
	// Nor does a version from before a restore.
	for _, name := range []string{"a", "b"} {
		w.beats[name] = Member{Version: 5, Taken: taken + 1000}
	}
	if got := w.poll(nil); got != 0 {
		t.Errorf("after a restore it counts %s", got)
	}
}
