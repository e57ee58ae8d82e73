package dashboardcmd

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// TestPlainSaysWhatIsMissing: who may not read nodes is told so, with --plain as with --once.
func TestPlainSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	for name, print := range map[string]func(*session, context.Context, *page.World) error{
		"--plain": (*session).plain, "--once": (*session).once,
	} {
		var out, errOut bytes.Buffer
		streams := cli.NoStreams()
		streams.Out, streams.ErrOut = &out, &errOut
		f := cli.NewFactory("virtctl", streams, func(string) string { return "" })
		f.Flags.Overrides.ClusterInfo.Server = "https://127.0.0.1:1"
		nothing := func() {}
		w := &page.World{
			Machines: store.NewMachines(nothing), Nodes: store.NewTable[store.Node](nothing),
			Migrations: store.NewTable[store.Migration](nothing),
		}
		vm := v1.VirtualMachine{}
		vm.Namespace, vm.Name = "prod", "web"
		w.Machines.Load([]v1.VirtualMachine{vm}, nil)
		w.Migrations.Load(nil)
		w.Nodes.Lost(time.Now(), apierrors.NewForbidden(corev1.Resource("nodes"), "", errors.New("no")))
		var err error
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			s := &session{options: &Options{Factory: f, Output: cli.NewOutput()}, changes: make(chan struct{})}
			err = print(s, ctx, w)
		})
		if name == "--once" && err != nil || name == "--plain" && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		if said := errOut.String(); strings.Count(said, "warning: the nodes are missing: ") != 1 ||
			!strings.Contains(out.String(), "web") {
			t.Errorf("%s says %q, and prints %q", name, said, &out)
		}
	}
}
