package why

import (
	"strings"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/sets"
)

// member is one of a pool, in a situation that TestSituations explains.
func member(name string, changes ...situation) Facts {
	f := healthy()
	f.Name = name
	apply(&f, changes)
	return f
}

func TestExplainSet(t *testing.T) {
	row := func(desired, current, ready int64) sets.Row {
		return sets.Row{Namespace: "default", Name: "web", Desired: desired, Current: current, Ready: ready}
	}
	noImage := waiting("ErrImagePull", `failed to pull and unpack image "ghcr.io/virtkit/tiny-disk:dev": not found`)
	failing := row(3, 1, 1)
	failing.Failure = "FailedScaleOut: exceeded quota"
	paused := row(3, 1, 1)
	paused.Paused = true
	kept := row(1, 2, 2)
	kept.KeepsExcess = "opportunistic"
	for name, tc := range map[string]struct {
		facts   SetFacts
		verdict State
		summary string
		chain   int
		// causes are the reasons of the causes, message is in the first.
		causes, message string
	}{
		"well": {
			SetFacts{Set: row(2, 2, 2), Ready: []string{"web-1", "web-0"}}, OK, "2 of 2 machines are ready", 3, "", "",
		},
		"quota": {
			SetFacts{Set: failing, Ready: []string{"web-0"}},
			Broken, "1 of 3 machines are ready", 2, "ReplicaFailure",
			"exceeded quota",
		},
		"paused": {
			SetFacts{Set: paused, Ready: []string{"web-0"}},
			Broken, "1 of 3 machines are ready", 2, "Paused",
			"with 1 of 3",
		},
		"growing": {
			SetFacts{Set: row(3, 1, 1), Ready: []string{"web-0"}},
			Waiting, "1 of 3 machines are ready", 2, "TooFew",
			"about to be made",
		},
		"shrinking": {
			SetFacts{Set: row(1, 2, 2), Ready: []string{"web-0", "web-1"}},
			Waiting, "2 of 1 machines are ready", 3,
			"TooMany", "more than the 1",
		},
		"not shrinking": {
			SetFacts{Set: kept, Ready: []string{"web-0", "web-1"}},
			Waiting, "2 of 1 machines are ready", 3,
			"ExcessIsKept", "its scaleInStrategy is opportunistic",
		},
		"one is stuck": {
			SetFacts{Set: row(2, 2, 1), Ready: []string{"web-0"}, Short: []Facts{member("web-1", noImage)}},
			Broken,
			"1 of 2 machines are ready", 3, "ImageNotFound", "web-1: ",
		},
		"more of the same": {
			SetFacts{Set: row(9, 9, 0), Short: []Facts{member("web-0", noImage), member("web-1", noImage)}, More: 7},
			Broken, "0 of 9 machines are ready; 7 more that are not ready were not looked at", 3, "ImageNotFound",
			"web-0: ",
		},
		"halted": {
			SetFacts{
				Set: row(2, 2, 0),
				Short: []Facts{
					member("web-0", stopped(v1.RunStrategyHalted)), member("web-1", stopped(v1.RunStrategyHalted)),
				},
			},
			Off, "0 of 2 machines are ready", 3, "Halted", "web-0: ",
		},
		"one halted, one starts": {
			SetFacts{
				Set: row(2, 2, 0),
				Short: []Facts{
					member("web-0", stopped(v1.RunStrategyHalted)), member("web-1", phase(v1.Scheduled, time.Second)),
				},
			},
			Waiting, "0 of 2 machines are ready", 3, "*", "",
		},
		"starts": {
			SetFacts{Set: row(1, 1, 0), Short: []Facts{member("web-0", phase(v1.Scheduled, time.Second))}},
			Waiting,
			"0 of 1 machines are ready", 2, "*", "web-0: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.facts.Kind = "vmpool"
			r := ExplainSet(tc.facts)
			var causes []string
			for _, c := range r.Causes {
				causes = append(causes, c.Reason)
				if len(c.Fixes) == 0 && c.State == Broken || c.Message == "" {
					t.Errorf("cause %+v", c)
				}
			}
			got := strings.Join(causes, " ")
			if r.Verdict != tc.verdict || r.Summary != tc.summary || len(r.Chain) != tc.chain ||
				tc.causes != "*" && got != tc.causes {
				t.Errorf("%s, %q, chain %+v, causes %s", r.Verdict, r.Summary, r.Chain, got)
			}
			if tc.message != "" && !strings.Contains(r.Causes[0].Message, tc.message) {
				t.Errorf("says %q", r.Causes[0].Message)
			}
			if r.Chain[0].Object != "vmpool/web" || r.Chain[0].Layer != LayerSet ||
				len(r.Chain) > 1 && r.Chain[1].Object != "vm/web-0" {
				t.Errorf("chain %+v", r.Chain)
			}
		})
	}
	r := ExplainSet(SetFacts{Kind: "vmirs", Set: row(1, 1, 1), Ready: []string{"webx7"}})
	if r.Chain[1].Object != "vmi/webx7" || r.Chain[1].Layer != LayerVMI {
		t.Errorf("of a replica set: %+v", r.Chain)
	}
}
