package whycmd

import (
	"bytes"
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

// The code is that of the connection where one is asked about, whatever else there is about the VM.
func TestOutcomeOfConnections(t *testing.T) {
	for verdict, want := range map[why.State]int{
		why.OK: cli.ExitOK, why.Waiting: cli.ExitTimeout, why.Broken: cli.ExitFailure, why.Unknown: cli.ExitNotAllowed,
	} {
		for _, of := range []why.State{why.OK, why.Broken, why.Off} {
			r := &why.Report{Verdict: of, Connection: &why.Connection{Verdict: verdict}}
			if got := cli.ExitCode(outcome([]*why.Report{r}, nil, false)); got != want {
				t.Errorf("%s connection to a VM that is %s: code %d, want %d", verdict, of, got, want)
			}
		}
	}
}

// A path that drops all ports is marked so, also where the other family gets through.
func TestPrintConnection(t *testing.T) {
	var out bytes.Buffer
	r := &why.Report{Metadata: why.Metadata{Namespace: "ns", Name: "web"}, Connection: &why.Connection{
		Protocol: "TCP", Verdict: why.OK, Summary: "nothing known drops it\x1b[2J",
		Paths: []why.Path{
			{Family: "IPv4", From: "10.0.0.1", To: "10.0.0.2", Ports: "80"},
			{Family: "IPv6", From: "fd00::1", To: "fd00::2", Ports: "none"},
		},
		Causes: []why.Cause{{Message: "by IPv6", Reason: "IngressDenied", Fixes: []string{"virtctl why web"}}},
		Notes:  []string{"first", "second\x1b"},
	}, Unreadable: []string{"nodes"}}
	if err := printConnection(&cli.IOStreams{Out: &out, ErrOut: &out}, r, "kubectl virt"); err != nil {
		t.Fatal(err)
	}
	const want = `ns/web: nothing known drops it\u001b[2J

  ok    IPv4  10.0.0.1 to 10.0.0.2, TCP ports: 80
  FAIL  IPv6  fd00::1 to fd00::2, TCP ports: none

1. by IPv6 (IngressDenied)
   fix: kubectl virt why web

note: first
note: second\u001b

Not looked at: a firewall in the guest, what listens there, and the network plugin's own kinds of policies.

You may not read nodes: there may be more to it.
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
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
