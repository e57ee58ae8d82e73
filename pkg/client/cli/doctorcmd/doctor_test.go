package doctorcmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	apiversion "k8s.io/apimachinery/pkg/version"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/action/doctor"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/clitest"
)

// TestPrint has the report as text: a title for each area and node, marks, fixes; --quiet keeps what is not well and
// says how much was not looked at.
func TestPrint(t *testing.T) {
	report := &doctor.Report{Checks: []doctor.Check{
		{Area: doctor.Client, Status: doctor.OK, Message: "virtctl is new"},
		{Area: doctor.Cluster, Status: doctor.Skipped, Message: "storage: forbidden"},
		{Area: doctor.Node, Object: "a", Status: doctor.OK, Message: "it is ready"},
		{
			Area: doctor.Node, Object: "a", Status: doctor.Warning, Message: "no KVM\nat all",
			Fixes: []string{"enable it", "or do not"},
		},
		{Area: doctor.Node, Object: "b\x1b[2J", Status: doctor.Failed, Message: "it is gone"},
	}}
	const all = `client
  ok    virtctl is new

cluster
  skip  storage: forbidden

node a
  ok    it is ready
  warn  no KVM at all
        fix: enable it
        fix: or do not

node b\u001b[2J
  FAIL  it is gone
`
	const quiet = `node a
  warn  no KVM at all
        fix: enable it
        fix: or do not

node b\u001b[2J
  FAIL  it is gone
`
	for _, test := range []struct {
		quiet        bool
		want, stderr string
	}{
		{false, all, ""},
		{true, quiet, "note: 1 checks were skipped; `virtctl doctor` says which, and why\n"},
	} {
		var out, errOut bytes.Buffer
		f := cli.NewFactory("virtctl", &cli.IOStreams{Out: &out, ErrOut: &errOut}, func(string) string { return "" })
		o := &Options{Factory: f, Output: cli.NewNameless(), Quiet: test.quiet}
		err := o.print(report)
		f.IO.Flush()
		if err != nil || out.String() != test.want || errOut.String() != test.stderr {
			t.Errorf("quiet %t: %v, stderr %q, got\n%swant\n%s", test.quiet, err, errOut.String(), out.String(),
				test.want)
		}
	}
}

// A check that has failed is exit code 1 and no error to be printed, also of -o json, whose report is whole.
func TestExitCode(t *testing.T) {
	api := clienttest.New(t)
	api.Put("/version", apiversion.Info{GitVersion: "v1.37.0", Major: "1", Minor: "37"})
	for name, api := range map[string]*clienttest.API{"no virtkit": api, "no cluster": clienttest.New(t)} {
		examine := clitest.Command{New: NewCmdDoctor, Kubeconfig: api.Kubeconfig("team-a")}
		out, errOut, err := examine.Run(t, "-o", "json")
		var report doctor.Report
		if read := json.Unmarshal([]byte(out), &report); read != nil {
			t.Errorf("%s: %v: %s", name, read, out)
		}
		if cli.ExitCode(err) != cli.ExitFailure || errOut != "" || report.Status != doctor.Failed ||
			report.Kind != doctor.Kind || len(report.Checks) == 0 {
			t.Errorf("%s: %v, stderr %q, status %s of %d checks", name, err, errOut, report.Status, len(report.Checks))
		}
		if exit := (*cli.ExitError)(nil); !errors.As(err, &exit) || exit.Err != nil {
			t.Errorf("%s: beside the report it says %v", name, err)
		}
		out, _, _ = examine.Run(t, "--quiet") // with the same code
		if !strings.Contains(out, "  FAIL  ") || strings.Contains(out, "  ok  ") {
			t.Errorf("%s: --quiet shows\n%s", name, out)
		}
	}
}
