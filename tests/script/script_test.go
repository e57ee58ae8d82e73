// Package script tests virtctl as a user types it: txtar scripts under testdata run the real program. The scripts in
// offline need no cluster; those in cluster have an API server of this package's own, which behaves as virtkit's
// does from virtctl's side and holds the objects of the script's cluster.yaml.
//
// Besides testscript's commands there is
//
//	exits CODE PROGRAM ARGUMENTS...   the program must end with CODE
//	requests [sorted]                 what the API server was asked to change, for stdout to match; sorted where
//	                                  several were asked at once
//
// `go test ./tests/script -update` rewrites the golden files inside the scripts.
package script

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/virtkit/virtkit/pkg/client/cli/root"
	"github.com/virtkit/virtkit/tests/exits"
)

var update = flag.Bool("update", false, "rewrite the golden files in the scripts")

func TestMain(m *testing.M) {
	virtctl := func() { os.Exit(checked(root.Main)) }
	testscript.Main(m, map[string]func(){"virtctl": virtctl, "kubectl-virt": virtctl, "viewer": viewer, "talk": talk})
}

func TestOffline(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/offline",
		Cmds:          commands,
		UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			env.Setenv("KUBECONFIG", filepath.Join(env.WorkDir, "no-kubeconfig"))
			env.Setenv("NO_COLOR", "1")
			return setSchemas(env)
		},
	})
}

func TestCluster(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/cluster",
		Cmds:          commands,
		UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			c := newCluster()
			if err := c.load(filepath.Join(env.WorkDir, "cluster.yaml")); err != nil {
				return err
			}
			if err := c.addSSH(env.WorkDir); err != nil {
				return err
			}
			env.Defer(c.close)
			env.Defer(func() { stopForwarding(t, env.WorkDir) })
			env.Values[clusterKey{}] = c
			env.Setenv("NO_COLOR", "1")
			plugins, err := filepath.Abs("../../plugins")
			if err != nil {
				return err
			}
			env.Setenv("PLUGINS", plugins)
			if err := setSchemas(env); err != nil {
				return err
			}
			env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, "state"))
			env.Setenv("KUBECONFIG", filepath.Join(env.WorkDir, "kubeconfig"))
			return c.writeKubeconfig(env.WorkDir)
		},
	})
}

type clusterKey struct{}

var commands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"exits":    exits.Command,
	"requests": requests,
	"attached": attached,
}

// madeUID is a UID that the cluster has given: its number depends on the order of requests.
var madeUID = regexp.MustCompile(`"uid-[0-9]+"`)

func requests(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 1 || len(args) == 1 && args[0] != "sorted" {
		ts.Fatalf("usage: requests [sorted]")
	}
	c := ts.Value(clusterKey{}).(*cluster)
	lines := c.requested()
	for i := range lines {
		lines[i] = madeUID.ReplaceAllString(lines[i], `"uid-N"`)
	}
	if len(args) == 1 {
		slices.Sort(lines)
	}
	_, err := ts.Stdout().Write([]byte(strings.Join(lines, "\n") + "\n"))
	ts.Check(err)
}

func attached(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: attached NAMESPACE/NAME")
	}
	g := ts.Value(clusterKey{}).(*cluster).guestOf(args[0])
	deadline := time.After(time.Minute)
	for g.clients() == 0 {
		select {
		case <-deadline:
			ts.Fatalf("nobody is at the console of %s", args[0])
		case <-time.After(10 * time.Millisecond):
		}
	}
}
