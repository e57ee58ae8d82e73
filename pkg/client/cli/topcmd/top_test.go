package topcmd

import (
	"bytes"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/action/top"
	"github.com/virtkit/virtkit/pkg/client/cli"
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

// A limit stands beside its rate.
func TestRateWithLimit(t *testing.T) {
	if got := rate(9<<20, 10<<20) + " " + rate(812, 0) + " " + rate(0, 1_000_000); got != "9.0Mi/10Mi 812 0/1000000" {
		t.Errorf("%s", got)
	}
}
