package whycmd

import (
	"errors"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/why"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// The code is the one that all share which are not ok, else 1; what failed is said, what was reported is not said
// again.
func TestOutcome(t *testing.T) {
	ok, off := &why.Report{Verdict: why.OK}, &why.Report{Verdict: why.Off}
	waiting, broken := &why.Report{Verdict: why.Waiting}, &why.Report{Verdict: why.Broken}
	gone := &why.Report{Verdict: why.Broken, Causes: []why.Cause{{Reason: "NotFound"}}}
	failed := errors.New("it failed")
	for _, c := range []struct {
		name    string
		reports []*why.Report
		errs    []error
		code    int
		said    bool
	}{
		{"ok", []*why.Report{ok, off}, nil, cli.ExitOK, false},
		{"one waits", []*why.Report{ok, waiting}, nil, cli.ExitTimeout, false},
		{"all wait", []*why.Report{waiting, waiting}, nil, cli.ExitTimeout, false},
		{"they differ", []*why.Report{waiting, broken}, nil, cli.ExitFailure, false},
		{"gone", []*why.Report{ok, gone}, nil, cli.ExitNotFound, false},
		{"all gone", []*why.Report{gone, gone}, nil, cli.ExitNotFound, false},
		{"failed", []*why.Report{ok}, []error{failed}, cli.ExitFailure, true},
		{"failed and waits", []*why.Report{waiting}, []error{failed}, cli.ExitFailure, true},
		{"not found twice", nil, []error{action.ErrNotFound, action.ErrNotFound}, cli.ExitNotFound, true},
	} {
		err := outcome(c.reports, c.errs, false)
		var exit *cli.ExitError
		said := err != nil && (!errors.As(err, &exit) || exit.Err != nil)
		if got := cli.ExitCode(err); got != c.code || said != c.said {
			t.Errorf("%s: code %d, said %v; want %d, %v", c.name, got, said, c.code, c.said)
		}
	}
}

// What is not there is an error, with what may have been meant; what is there is reported.
func TestWithoutMissing(t *testing.T) {
	o := &Options{Factory: cli.NewFactory("kubectl virt", cli.NoStreams(), func(string) string { return "" })}
	ok := &why.Report{Verdict: why.OK}
	for want, cause := range map[string]why.Cause{
		`vm "web" not found; see ` + "`kubectl virt list -A`": {
			Message: `vm "web" not found`, Fixes: []string{"virtctl list -A"},
		},
		`vm "web" not found; there is vmpool/web; see ` + "`kubectl virt why vmpool/web -n ns`": {
			Message: `vm "web" not found; there is vmpool/web`, Fixes: []string{"virtctl why vmpool/web -n ns"},
		},
		`vm "web" not found; did you mean "wed"?`: {
			Message: `vm "web" not found; did you mean "wed"?`, Fixes: []string{"virtctl why wed -n ns"},
		},
	} {
		cause.Reason = "NotFound"
		reports, errs := o.withoutMissing([]*why.Report{{Verdict: why.Broken, Causes: []why.Cause{cause}}, ok}, nil)
		if len(reports) != 1 || reports[0] != ok || len(errs) != 1 || errs[0].Error() != want ||
			cli.ExitCode(errs[0]) != cli.ExitNotFound {
			t.Errorf("%d reports, %v, want %s", len(reports), errs, want)
		}
	}
}

func TestSubjects(t *testing.T) {
	o := &Options{Chosen: cli.Chosen{Names: []string{"web", "vmpool/web", "vm/web", "vm/db/shop", "web"}}}
	found, err := o.subjects("default")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range found {
		kind := ""
		if s.set != nil {
			kind = s.set.Short + "/"
		}
		got = append(got, kind+s.target.Name)
	}
	if len(got) != 3 || got[0] != "web" || got[1] != "vmpool/web" || got[2] != "db" {
		t.Errorf("got %v", got)
	}
}
