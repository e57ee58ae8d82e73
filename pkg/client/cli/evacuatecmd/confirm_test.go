package evacuatecmd

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/action/evacuate"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// Where nobody can be asked, an evacuation that ends guests needs --yes, and one that only moves them does not.
func TestNobodyCanBeAsked(t *testing.T) {
	moves := evacuate.Guest{Outcome: evacuate.Moves}
	for _, test := range []struct {
		guest   evacuate.Outcome
		yes     bool
		dryRun  cli.DryRun
		refused bool
	}{
		{evacuate.Restarts, false, cli.DryRunNone, true},
		{evacuate.Ends, false, cli.DryRunNone, true},
		{evacuate.Restarts, true, cli.DryRunNone, false},
		{evacuate.Restarts, false, cli.DryRunServer, false},
		{evacuate.Moves, false, cli.DryRunNone, false},
		{evacuate.Stays, false, cli.DryRunNone, false},
		{evacuate.Waits, false, cli.DryRunNone, false},
	} {
		f := cli.NewFactory("virtctl", &cli.IOStreams{
			In: strings.NewReader("yes\n"), Out: &bytes.Buffer{}, ErrOut: &bytes.Buffer{},
		}, func(string) string { return "" })
		o := &Options{Factory: f, Output: cli.NewOutput(), Yes: test.yes, DryRun: test.dryRun}
		err := o.confirm(t.Context(), &evacuate.Report{
			Node: "node1", Guests: []evacuate.Guest{moves, {Outcome: test.guest}},
		})
		var usage *cli.UsageError
		switch {
		case test.refused != errors.As(err, &usage), !test.refused && err != nil:
			t.Errorf("%+v: %v", test, err)
		case test.refused && !strings.Contains(err.Error(), "1 of the 2 guests of node node1 would be shut down; "+
			"add --yes"):
			t.Errorf("%+v: %v", test, err)
		}
	}
}
