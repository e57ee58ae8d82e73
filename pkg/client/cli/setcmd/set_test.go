package setcmd

import (
	"errors"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

// TestConflict says the way out of fields that an instance type sets, and leaves other errors as they are.
func TestConflict(t *testing.T) {
	f := cli.NewFactory("virtctl", cli.NoStreams(), func(string) string { return "" })
	f.Flags.Overrides.Context.Namespace = "default"
	f.Flags.Overrides.ClusterInfo.Server = "https://127.0.0.1:1"
	const said = `spec.template.spec.domain.memory.guest: conflicts with selected instance type "small", ` +
		`which sets it; remove one of them`
	denied := &apierrors.StatusError{ErrStatus: metav1.Status{
		Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: `admission webhook "virtualmachine-validator.kubevirt.io" denied the request: ` + said,
	}}
	const edits = said + ": `virtctl edit web"
	const takes = "` takes such fields out of the template and names the instance type in one change"
	for name, tc := range map[string]struct {
		field, namespace string
		err              error
		want             string
	}{
		"conflict":        {"instancetype", "default", denied, edits + takes},
		"elsewhere":       {"instancetype", "shop", denied, edits + " -n shop" + takes},
		"another field":   {"memory", "default", denied, said},
		"another failure": {"instancetype", "default", errors.New("broken"), "broken"},
	} {
		o := &Options{Factory: f, Field: tc.field}
		err := o.conflict(cli.Target{Namespace: tc.namespace, Name: "web"}, tc.err)
		if got := cli.Explain(err, cli.Connection{}); got != tc.want || cli.ExitCode(err) != cli.ExitFailure {
			t.Errorf("%s: code %d, %s\nwant %s", name, cli.ExitCode(err), got, tc.want)
		}
	}
}
