package report

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

const ms = time.Millisecond

func times(of ...time.Duration) []time.Duration { return of }

func sample() *Report {
	return &Report{
		Kind: Kind, At: time.Date(2026, 11, 26, 18, 0, 0, 0, time.UTC), Commit: "abc1234",
		Machine: "two cores", Rounds: 3,
		Rows: []Row{
			Timed("create-running", "create → Running, median", "s", times(700*ms, 800*ms, 750*ms), .5).
				Beside("plain Pod", times(500*ms, 500*ms, 500*ms), .5).Times(2),
			Timed("port-forward-connect", "port-forward, new connection, median", "ms", times(8*ms, 9*ms, 8*ms), .5).
				Beside("TCP from the pod", times(1*ms, 1*ms, 1*ms), .5).Beyond(4),
			Row{
				Name: "port-forward-throughput", What: "port-forward", Unit: "MiB/s",
				Value: 90, Anchor: 100, Versus: "the pod", Ratio: .9,
			}.AtLeast(.85),
			Row{Name: "idle-rss", What: "RSS", Unit: "MiB", Value: 396}.AtMost(280),
			{Name: "idle-pss", What: "… PSS", Unit: "MiB", Value: 1222},
		},
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	if err := sample().Table(&out); err != nil {
		t.Fatal(err)
	}
	want := `MEASURE                               VALUE     ANCHOR                   RATIO  GOAL             REACHED
create → Running, median              0.75 s    0.5 s (plain Pod)        1.50×  ≤ 2×             yes
port-forward, new connection, median  8 ms      1 ms (TCP from the pod)  8.00×  ≤ anchor + 4 ms  no
port-forward                          90 MiB/s  100 MiB/s (the pod)      0.90×  ≥ 0.85×          yes
RSS                                   396 MiB   -                        -      ≤ 280 MiB        no
… PSS                                 1222 MiB  -                        -      -                -
`
	if got := out.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// The page keeps what is around the report, and a page without its lines is refused.
func TestInto(t *testing.T) {
	page := "# Performance\n" + begins + "\nold\n" + ends + "\n## How\n"
	got, err := sample().Into(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# Performance\n", "## How\n", "Commit abc1234, 26 November 2026, 3 rounds, on two cores.",
		"| create → Running, median | 0.75 s | 0.5 s (plain Pod) | 1.50× | ≤ 2× | yes | 6.8× |\n",
		"| … PSS | 1222 MiB | | | | | |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "old") {
		t.Errorf("the old one is still there:\n%s", got)
	}
	if again, err := sample().Into(got); err != nil || again != got {
		t.Errorf("a second time it is another: %v\n%s", err, again)
	}
	if _, err := sample().Into("# Performance\n"); err == nil {
		t.Error("a page without its lines is taken")
	}
}

func TestRead(t *testing.T) {
	var out bytes.Buffer
	if err := sample().JSON(&out); err != nil {
		t.Fatal(err)
	}
	got, err := Read(&out)
	if err != nil || len(got.Rows) != 5 || got.Rows[0].Samples[1] != .8 || got.Rows[0].AnchorSamples[0] != .5 {
		t.Errorf("%v, %+v", err, got)
	}
	if _, err := Read(strings.NewReader(`{"kind":"List"}`)); err == nil || !strings.Contains(err.Error(), `"List"`) {
		t.Errorf("another kind: %v", err)
	}
}

// A change counts when it is beyond what the samples of both runs scatter, and drift that hits the anchor too is none.
func TestCompare(t *testing.T) {
	row := func(samples, anchors []time.Duration) *Report {
		r := Timed("x", "x", "ms", samples, .5)
		if anchors != nil {
			r = r.Beside("y", anchors, .5)
		}
		return &Report{Rows: []Row{r}}
	}
	steady, double := times(100*ms, 101*ms, 99*ms, 100*ms), times(200*ms, 202*ms, 198*ms, 200*ms)
	wild := times(60*ms, 100*ms, 180*ms, 300*ms)
	once := func(value float64, higher bool) *Report {
		return &Report{Rows: []Row{{Name: "x", Unit: "MiB", Value: value, Higher: higher}}}
	}
	for name, tc := range map[string]struct {
		before, after *Report
		want          Verdict
	}{
		"the same":             {row(steady, nil), row(steady, nil), Same},
		"twice as slow":        {row(steady, nil), row(double, nil), Worse},
		"twice as fast":        {row(double, nil), row(steady, nil), Better},
		"a slower machine":     {row(steady, steady), row(double, double), Same},
		"slower beside it":     {row(steady, steady), row(double, steady), Worse},
		"within its scatter":   {row(steady, nil), row(wild, nil), Same},
		"4 % more":             {once(100, false), once(104, false), Same},
		"once, 30 % more":      {once(100, false), once(130, false), Worse},
		"less throughput":      {once(100, true), once(70, true), Worse},
		"more throughput":      {once(100, true), once(150, true), Better},
		"a row of one of them": {row(steady, nil), &Report{Rows: []Row{{Name: "z", Value: 1}}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			changes := Compare(tc.before, tc.after)
			var got Verdict
			if len(changes) > 0 {
				got = changes[0].Verdict
			}
			if got != tc.want {
				t.Errorf("%s, want %s: %+v", got, tc.want, changes)
			}
			worse, err := Changes(&bytes.Buffer{}, changes)
			if err != nil || worse != (tc.want == Worse) {
				t.Errorf("worse %t, %v", worse, err)
			}
		})
	}
}
