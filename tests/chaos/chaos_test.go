//go:build chaos

package chaos

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/virtkit/virtkit/tests/instance"
)

const (
	defaultSeed  = 1
	defaultKills = 64
	defaultTime  = 40 * time.Minute
)

// settings are what the environment asks for.
func settings() (seed uint64, kills int, limit time.Duration, err error) {
	seed, kills, limit = defaultSeed, defaultKills, defaultTime
	switch text := os.Getenv("CHAOS_SEED"); text {
	case "":
	case "random":
		seed = uint64(rand.Uint32())
	default:
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			return 0, 0, 0, fmt.Errorf("CHAOS_SEED: %q is neither a number nor \"random\"", text)
		}
	}
	if text := os.Getenv("CHAOS_KILLS"); text != "" {
		if kills, err = strconv.Atoi(text); err != nil || kills < 1 {
			return 0, 0, 0, fmt.Errorf("CHAOS_KILLS: %q is no number of kills", text)
		}
	}
	if text := os.Getenv("CHAOS_TIME"); text != "" {
		if limit, err = time.ParseDuration(text); err != nil {
			return 0, 0, 0, fmt.Errorf("CHAOS_TIME: %w", err)
		}
	}
	return seed, kills, limit, nil
}

// TestChaos kills by the plan of a seed, goes on after what fails, and ends with a table.
func TestChaos(t *testing.T) {
	begun := time.Now()
	seed, kills, limit, err := settings()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %d, %d kills, no new one after %v", seed, kills, limit)
	ctx := t.Context()
	// The journals are read on the machine, where volumes that are directories have them.
	i, err := instance.Start(ctx, "chaos", "--storage", "hostpath")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if os.Getenv("VIRTKIT_E2E_KEEP") != "" {
			t.Logf("instance %s is kept, kubeconfig %s; end it with: bin/virt-local down --name %[1]s", i.Name,
				i.Kubeconfig)
			return
		}
		if err := i.Down(); err != nil {
			t.Error(err)
		}
	})
	if err := i.Install(ctx); err != nil {
		t.Fatal(err)
	}
	r, err := newRun(ctx, t, i)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("all is well after %v; the kills begin", time.Since(begun).Round(time.Second))

	report := Report{Seed: seed, Planned: kills}
	var longest time.Duration
	for n, s := range Plan(seed, kills) {
		// One that is like the longest must end in time.
		if time.Since(begun)+longest > limit {
			t.Logf("%d of %d kills fit into %v", n, kills, limit)
			break
		}
		since := time.Now()
		o, err := r.step(ctx, s)
		longest = max(longest, time.Since(since))
		report.Outcomes = append(report.Outcomes, o)
		t.Logf("%d/%d: %s, %s (%s): well after %v, %v in all, failed: %v",
			n+1, kills, s.Kind, s.Phase, o.Killed, o.Recovery, time.Since(since).Round(time.Second), o.Failed())
		if err != nil {
			t.Error(err)
			break
		}
	}
	conclude(t, report)
}

// conclude writes the results, and fails the test by them.
func conclude(t *testing.T, report Report) {
	var table bytes.Buffer
	if err := report.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\n%s\n", table.Bytes())
	if path := os.Getenv("CHAOS_OUT"); path != "" {
		f, err := os.Create(path)
		if err == nil {
			err = report.WriteJSON(f)
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Errorf("CHAOS_OUT: %v", err)
		}
	}
	if report.Failed() {
		t.Error("something was lost, doubled, ended or stuck; see the table")
	}
}
