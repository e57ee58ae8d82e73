package chaos

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; write it anew with -update and look at the difference. Got:\n%s", path, got)
	}
}

// A seed means the same kills on every machine and with every version of Go.
func TestPlan(t *testing.T) {
	var text strings.Builder
	for _, s := range Plan(1, 64) {
		fmt.Fprintf(&text, "%-10s%-25sguest %d  target %-6v%6v%6v\n", s.Phase, s.Kind, s.Guest, s.Target, s.Delay,
			s.Pause)
	}
	golden(t, "plan.golden", text.String())
}

// Every pair of phase and kind comes once before any comes again, whatever the seed.
func TestPlanCoversEveryPair(t *testing.T) {
	pairs := len(Phases) * len(Kinds)
	type pair struct {
		Phase
		Kind
	}
	for seed := range uint64(50) {
		plan := Plan(seed, 2*pairs+7)
		if len(plan) != 2*pairs+7 {
			t.Fatalf("seed %d: %d steps", seed, len(plan))
		}
		for begin := 0; begin < len(plan); begin += pairs {
			seen := map[pair]bool{}
			for _, s := range plan[begin:min(begin+pairs, len(plan))] {
				if seen[pair{s.Phase, s.Kind}] {
					t.Errorf("seed %d: %s, %s comes again too early", seed, s.Kind, s.Phase)
				}
				seen[pair{s.Phase, s.Kind}] = true
			}
		}
		for _, s := range plan {
			if s.Delay < 0 || s.Delay > window[s.Phase] || s.Kind.Stops() != (s.Pause >= 2*time.Second) ||
				s.Guest < 0 || s.Guest >= Guests {
				t.Errorf("seed %d: %+v", seed, s)
			}
			if s.Target && s.Kind.OfGuest() && s.Phase != Migrating {
				t.Errorf("seed %d: %+v has a target, and no migration", seed, s)
			}
		}
	}
}

// The default number of kills has every pair, and a shorter plan is the beginning of a longer one where both know all
// pairs.
func TestPlanSeeds(t *testing.T) {
	if pairs := len(Phases) * len(Kinds); pairs > 64 {
		t.Errorf("%d pairs are more than the 64 kills of a run", pairs)
	}
	if !reflect.DeepEqual(Plan(1, 64), Plan(1, 64)) {
		t.Error("the same seed gives two plans")
	}
	if reflect.DeepEqual(Plan(1, 64), Plan(2, 64)) {
		t.Error("two seeds give the same plan")
	}
	if !reflect.DeepEqual(Plan(1, 6), Plan(1, 64)[:6]) {
		t.Error("a shorter run begins otherwise")
	}
}
