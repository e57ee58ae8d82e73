package topcmd

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/action/top"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/clitest"
	"github.com/virtkit/virtkit/pkg/report/stats"
)

// A guest that does not answer has a row, and the table is not empty for it.
func TestTableOfUnanswered(t *testing.T) {
	for all, want := range map[bool]string{
		true:  "shop late node1 " + strings.Repeat("<unknown> ", 9),
		false: "late node1 " + strings.Repeat("<unknown> ", 9),
	} {
		var out, errOut bytes.Buffer
		f := cli.NewFactory("virtctl", &cli.IOStreams{Out: &out, ErrOut: &errOut}, func(string) string { return "" })
		o := &Options{Factory: f, Output: cli.NewOutput(), AllNamespaces: all}
		o.Output.NoHeaders = true
		err := o.print(&top.Report{Unanswered: []stats.Unanswered{{Namespace: "shop", Name: "late", Node: "node1"}}})
		if err != nil || errOut.Len() > 0 {
			t.Errorf("%v, said %q", err, errOut.String())
		}
		if got := strings.Join(strings.Fields(out.String()), " ") + " "; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Each interval has the header of custom columns, which says where it begins.
func TestIntervalsInCustomColumns(t *testing.T) {
	var out bytes.Buffer
	f := cli.NewFactory("virtctl", &cli.IOStreams{Out: &out, ErrOut: &out}, func(string) string { return "" })
	o := &Options{Factory: f, Output: cli.NewOutput(), Watch: true}
	o.Output.Format = "custom-columns=NAME:.name"
	for range 2 {
		if err := o.print(&top.Report{Items: []top.Row{{Name: "web"}, {Name: "db"}}}); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := out.String(), strings.Repeat("NAME\nweb\ndb\n", 2); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A limit stands beside its rate.
func TestRateWithLimit(t *testing.T) {
	if got := rate(9<<20, 10<<20) + " " + rate(812, 0) + " " + rate(0, 1_000_000); got != "9.0Mi/10Mi 812 0/1000000" {
		t.Errorf("%s", got)
	}
}

// Limits have a column where there are any: of requests, and of one of a guest's disks, too.
func TestTableOfLimits(t *testing.T) {
	var out bytes.Buffer
	f := cli.NewFactory("virtctl", &cli.IOStreams{Out: &out, ErrOut: &out}, func(string) string { return "" })
	o := &Options{Factory: f, Output: cli.NewOutput()}
	limits := []string{"disk root: iops=500", "interface default: in=10Mi"}
	err := o.print(&top.Report{
		Items:      []top.Row{{Name: "web", Limits: limits}, {Name: "db"}},
		Unanswered: []stats.Unanswered{{Name: "late"}},
	})
	lines := strings.Split(out.String(), "\n")
	if err != nil || len(lines) != 5 || !strings.HasSuffix(lines[0], "LIMITS") ||
		!strings.HasSuffix(lines[1], "disk root: iops=500; interface default: in=10Mi") ||
		!strings.HasSuffix(lines[2], " -") || !strings.HasSuffix(lines[3], "<unknown>") {
		t.Errorf("%v\n%s", err, out.String())
	}
	out.Reset()
	if err := o.print(&top.Report{Items: []top.Row{{Name: "db"}}}); err != nil ||
		strings.Contains(out.String(), "LIMITS") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// Guests of which two answers have one reading, as after an outage, are no absent ones: the next answer is waited for.
func TestTopWaitsForTwoReadings(t *testing.T) {
	t.Parallel()
	api := clienttest.New(t)
	asked := 0
	api.Put("/apis/subresources.kubevirt.io/v1/namespaces/shop/stats", http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) {
			asked++
			at := time.Date(2026, 1, 1, 0, 0, max(asked, 3), 0, time.UTC) // the first three are one
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"items":[{"namespace":"shop","name":"web","node":"one","time":%q,"vcpus":1}]}`,
				at.Format(time.RFC3339))
		}))
	out, errOut, err := clitest.Command{New: NewCmdTop, Kubeconfig: api.Kubeconfig("shop")}.Run(t,
		"--interval", "100ms", "--no-headers")
	if err != nil || !strings.HasPrefix(out, "web ") || errOut != "" || asked != 4 {
		t.Errorf("%q, %q, %v after %d answers", out, errOut, err, asked)
	}
}
