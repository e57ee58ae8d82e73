package scalecmd

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/action/sets"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

func TestArguments(t *testing.T) {
	for name, tc := range map[string]struct {
		args string
		want string // the kind, the name and the size, or the error
	}{
		"name":             {"db --replicas 5", " db 5"},
		"pool":             {"vmpool/db --replicas 0", "vmpool db 0"},
		"replica set":      {"vmirs/web --replicas 1 --current-replicas 3", "vmirs web 1"},
		"no size":          {"db", "--replicas is missing; it says how many machines there are to be"},
		"negative":         {"db --replicas=-1", "--replicas must not be negative"},
		"negative current": {"db --replicas=1 --current-replicas=-1", "--current-replicas must not be negative"},
		"another kind":     {"vm/db --replicas 1", `"vm/db": the kind must be vmpool or vmirs`},
		"no name":          {"vmpool/ --replicas 1", `"vmpool/" is not NAME, vmpool/NAME or vmirs/NAME`},
		"two slashes":      {"vmpool/a/b --replicas 1", `"vmpool/a/b" is not NAME, vmpool/NAME or vmirs/NAME`},
		"dry wait": {
			"db --replicas 1 --wait --dry-run", "--wait cannot be given with --dry-run: nothing will change",
		},
		"format": {"db --replicas 1 -o no", `unknown output format`},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			cmd := NewCmdScale(cli.NewFactory("virtctl", cli.NoStreams(), func(string) string { return "" }),
				func(_ context.Context, o *Options) error {
					if o.Kind != nil {
						got = o.Kind.Short
					}
					got += " " + o.Name + " " + fmt.Sprint(o.Replicas)
					return nil
				})
			cmd.SetArgs(strings.Fields(tc.args))
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			if err := cmd.Execute(); err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestReached has what is said at the end of --wait.
func TestReached(t *testing.T) {
	for replicas, want := range map[int32]string{
		0: "vmirs/web has no replicas, and those that it had are gone", 1: "vmirs/web has 1 replica, and it is ready",
		3: "vmirs/web has 3 replicas, and all are ready",
	} {
		o := &Options{Kind: &sets.ReplicaSet, Name: "web", Replicas: replicas}
		if got := o.reached(int64(replicas)); got != want {
			t.Errorf("%d: %q, want %q", replicas, got, want)
		}
	}
}

// A pool whose template starts none is as large as it was asked to be, and that is all.
func TestReachedOfHalted(t *testing.T) {
	o := &Options{Kind: &sets.Pool, Name: "web", Replicas: 2}
	if got := o.reached(1); got != "vmpool/web has 2 replicas, of which 1 are ready: its template starts none" {
		t.Error(got)
	}
}

// TestKept says that a pool deletes no VM only when it has too many and its strategy keeps them.
func TestKept(t *testing.T) {
	o := &Options{Factory: &cli.Factory{Program: "virtctl"}, Kind: &sets.Pool, Name: "db", Replicas: 1}
	row := sets.Row{Namespace: "ns", Name: "db", Current: 2, KeepsExcess: "unmanaged"}
	const want = "the scaleInStrategy of vmpool ns/db is unmanaged: it deletes no VM; delete those that are too many " +
		"with `virtctl delete`"
	if got := o.kept(row); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	row.Current = 1
	if got := o.kept(row); got != "" {
		t.Errorf("as many as there are to be: %q", got)
	}
	if got := o.kept(sets.Row{Current: 2}); got != "" {
		t.Errorf("a pool that deletes VMs: %q", got)
	}
}
