package dashboardcmd

import (
	"context"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// TestHealthOfAClusterThatIsOff says in words for the user why the cluster does not answer.
func TestHealthOfAClusterThatIsOff(t *testing.T) {
	t.Parallel()
	c, err := client.New(&rest.Config{Host: "http://127.0.0.1:1"}) // nothing listens there
	if err != nil {
		t.Fatal(err)
	}
	f := cli.NewFactory("virtctl", cli.NoStreams(), func(string) string { return "" })
	f.Flags.Kubeconfig = clienttest.New(t).Kubeconfig("prod")
	a := &actions{client: c, factory: f}
	for _, check := range a.Doctor(context.Background()).Checks {
		if check.Name != "connection" {
			continue
		}
		if !strings.Contains(check.Message, "cannot reach the cluster at http://127.0.0.1:1 ") ||
			strings.Contains(check.Message, "dial tcp") {
			t.Errorf("it says %q", check.Message)
		}
		return
	}
	t.Error("nothing is said of the connection")
}
