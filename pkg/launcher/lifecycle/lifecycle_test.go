package lifecycle

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestTable walks the whole table: what it says, and what its rules say about the rest.
func TestTable(t *testing.T) {
	for _, s := range States {
		if strings.HasPrefix(s.String(), "state(") {
			t.Errorf("%v has no name", s)
		}
		for _, e := range Events {
			next, err := Next(s, e)
			named, ok := table[s][e]
			switch illegal := (*IllegalError)(nil); {
			case s.Final():
				if next != s || err != nil || ok {
					t.Errorf("%v, which is final, and %v: %v, %v", s, e, next, err)
				}
			case ok:
				if next != named || err != nil {
					t.Errorf("%v and %v: %v, %v; want %v", s, e, next, err, named)
				}
			case e.Observation():
				if next != s || err != nil {
					t.Errorf("%v and %v, which others do: %v, %v", s, e, next, err)
				}
			default:
				if next != s || !errors.As(err, &illegal) || illegal.State != s || illegal.Event != e {
					t.Errorf("%v and %v, which is illegal: %v, %v", s, e, next, err)
				}
			}
		}
	}
	if len(table)+4 != len(States) || len(stateNames) != len(States) || len(eventNames) != len(Events) {
		t.Errorf("%d rows, %d names for %d states; %d names for %d events",
			len(table), len(stateNames), len(States), len(eventNames), len(Events))
	}
}

// TestNames checks that no two names are the same, and that what is no state has one that says so.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range States {
		seen[s.String()] = true
	}
	for _, e := range Events {
		seen[e.String()] = true
	}
	if len(seen) != len(States)+len(Events) {
		t.Errorf("%d names for %d states and %d events", len(seen), len(States), len(Events))
	}
	if got := fmt.Sprint(State(-1), Event(-1)); got != "state(-1) event(-1)" {
		t.Errorf("unknown ones are %q", got)
	}
}

// reachable are the states that may follow on one, itself included.
func reachable(from State) []State {
	all := []State{from}
	for i := 0; i < len(all); i++ {
		for _, e := range Events {
			if next, err := Next(all[i], e); err == nil && !slices.Contains(all, next) {
				all = append(all, next)
			}
		}
	}
	return all
}

// TestEveryStateIsReachable checks that each state comes up, and that every guest can end.
func TestEveryStateIsReachable(t *testing.T) {
	from := reachable(None)
	for _, s := range States {
		if !slices.Contains(from, s) {
			t.Errorf("%v is never reached", s)
		}
		if !slices.ContainsFunc(reachable(s), State.Final) {
			t.Errorf("%v never ends", s)
		}
	}
}

// TestNoWayBack checks that a guest that may have run here, or that is gone, never counts as one that has not run.
func TestNoWayBack(t *testing.T) {
	for _, s := range States {
		for _, next := range reachable(s) {
			if s.MayHaveRun() && !next.MayHaveRun() && !next.Final() {
				t.Errorf("%v, in which the guest may have run, leads to %v", s, next)
			}
		}
	}
	for _, once := range []State{Incoming, Received} {
		for _, e := range Events {
			if next, err := Next(once, e); err == nil && next != once && slices.Contains(reachable(next), once) {
				t.Errorf("%v and %v leads back to it", once, e)
			}
		}
	}
}

// TestShutdown checks that a guest that may have run is shut down, and not just called off.
func TestShutdown(t *testing.T) {
	for _, s := range States {
		want := s
		if !s.MayHaveRun() && !s.Final() {
			want = ShutOff
		}
		if next, err := Next(s, Shutdown); next != want || err != nil {
			t.Errorf("%v: %v, %v; want %v", s, next, err, want)
		}
	}
}

// TestHandingOver checks that a guest whose memory is on both sides stays until the target's fate is known.
func TestHandingOver(t *testing.T) {
	for _, e := range Events {
		next, _ := Next(HandingOver, e)
		if want := map[Event]State{FinishHandoff: HandedOver, TakeBack: Migrating}; next != HandingOver &&
			next != want[e] {
			t.Errorf("%v leads to %v", e, next)
		}
	}
}

// pair is a guest that moves: two launchers, and what they have said to each other.
type pair struct {
	source, target Machine
	// arrived and run are the words of the target and of the source.
	arrived, run bool
}

// steps are what may happen to a pair, by what package launcher does; libvirt has no say (it is held off by the gate).
func (p pair) steps() []pair {
	var all []pair
	step := func(enabled bool, do func(*pair) error) {
		next := p
		if enabled && do(&next) == nil && next != p {
			all = append(all, next)
		}
	}
	apply := func(m *Machine, e Event) error { _, _, err := m.Apply(e); return err }
	source := func(enabled bool, e Event) { step(enabled, func(n *pair) error { return apply(&n.source, e) }) }
	target := func(enabled bool, e Event) { step(enabled, func(n *pair) error { return apply(&n.target, e) }) }
	step(p.target.Now() == Received, func(n *pair) error { n.arrived = true; return nil })
	source(p.arrived, StartHandoff)
	step(p.source.Now() == HandingOver, func(n *pair) error { n.run = true; return nil })
	source(p.target.MayHaveRun(), FinishHandoff)
	source(p.target.NeverRan(), TakeBack)
	source(true, FailMigration)
	source(p.source.Now() == HandedOver, CompleteMigration)
	target(p.run, Release)
	target(true, TakeOver)
	// libvirt starts no guest at the target, but reports that it was started.
	target(p.target.MayHaveRun(), DomainRunning)
	for _, e := range []Event{DomainFound, DomainMigrating, DomainPaused, DomainStopping, Shutdown} {
		source(true, e)
		target(true, e)
	}
	for _, e := range []Event{DomainShutOff, DomainCrashed, DomainDestroyed} {
		target(p.target.Now().HasDomain() || p.target.Now() == NeverRan, e)
	}
	return all
}

// TestOneGuest walks all that may happen to a guest that moves, and to its target: it never runs on both sides, and the
// source never gives it up for a target that has not run it.
func TestOneGuest(t *testing.T) {
	start := pair{}
	for _, e := range []Event{Start, FinishStart, Migrate} {
		if _, _, err := start.source.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := start.target.Apply(Expect); err != nil {
		t.Fatal(err)
	}
	seen := map[pair]bool{start: true}
	ways := []pair{start}
	moved, stays := 0, 0
	for len(ways) > 0 {
		p := ways[0]
		ways = ways[1:]
		source, target := p.source.Now(), p.target.Now()
		if target.MayHaveRun() && (source == Active || source == Migrating) {
			t.Fatalf("it may run on both sides: source %v, target %v", source, target)
		}
		if (source == HandedOver || source == MigratedAway) && !p.target.MayHaveRun() {
			t.Fatalf("it runs on neither side: source %v, target %v", source, target)
		}
		if source == MigratedAway && target == Active {
			moved++
		}
		if source == Active && target.Final() {
			stays++
		}
		for _, next := range p.steps() {
			if !seen[next] {
				seen[next] = true
				ways = append(ways, next)
			}
		}
	}
	if moved == 0 || stays == 0 {
		t.Errorf("of %d pairs, it moves in %d and stays in %d", len(seen), moved, stays)
	}
}

// TestMachine checks what a machine remembers: its last state before the end, and what was illegal.
func TestMachine(t *testing.T) {
	var m Machine
	apply := func(e Event, want State) {
		t.Helper()
		was := m.Now()
		from, to, err := m.Apply(e)
		if from != was || to != want || m.Now() != want || err != nil {
			t.Fatalf("%v: from %v to %v, %v; want %v", e, from, to, err, want)
		}
	}
	apply(Expect, Incoming)
	if _, to, err := m.Apply(TakeOver); err == nil || to != Incoming || m.Illegal() != 1 ||
		err.Error() != "illegal transition: takeOver in state incoming" {
		t.Errorf("an illegal event: %v, %v, %d", to, err, m.Illegal())
	}
	apply(DomainPaused, Received)
	if m.NeverRan() || m.MayHaveRun() {
		t.Error("what becomes of it is not known yet")
	}
	apply(Shutdown, ShutOff)
	if !m.NeverRan() || m.MayHaveRun() || m.Last() != Received {
		t.Errorf("it never ran; last %v", m.Last())
	}
	apply(TakeOver, ShutOff) // late
	if m.Illegal() != 1 {
		t.Errorf("%d illegal events", m.Illegal())
	}
}
