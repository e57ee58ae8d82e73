//go:build e2e

package e2e

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/virtkit/virtkit/tests/exits"
	"github.com/virtkit/virtkit/tests/instance"
)

var update = flag.Bool("update", false, "rewrite the golden files in the scripts")

// deadline ends one script; a guest boots in seconds, but not when a dozen of them do on two cores.
const deadline = 15 * time.Minute

// TestScript runs the txtar scripts of testdata/script: virtctl as a user types it, against virtkit and real guests.
// Each has a namespace of its own, which is the kubeconfig's; $DISK names the tiny guest's container disk and
// $NAMESPACE the namespace. Besides testscript's commands there are
//
//	guest NAME [ARGUMENTS...]          make and run a VM from the tiny guest, user root, password tiny, with virtctl
//	                                   create vm's further ARGUMENTS, and wait for its login prompt
//	shared                             from here on the namespace is that of the shared guest, demo, which a script
//	                                   only looks at
//	exits CODE PROGRAM ARGUMENTS...    the program must end with CODE
//	eventually [-stdout REGEXP] PROGRAM ARGUMENTS...
//	                                   within six minutes the program must succeed, or else print what matches; it is
//	                                   tried again until then
//
// `go test -tags e2e -run TestScript/NAME ./tests/e2e` runs one of them, with -update to rewrite its golden files.
func TestScript(t *testing.T) {
	t.Parallel()
	c := theCluster
	scripts, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, script := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(script), ".txtar"), func(t *testing.T) {
			t.Parallel()
			namespace := c.namespace(t, "restricted")
			testscript.RunT(inOrder{t}, testscript.Params{
				Files:         []string{script},
				Deadline:      time.Now().Add(deadline),
				UpdateScripts: *update,
				Cmds: map[string]func(*testscript.TestScript, bool, []string){
					"guest": guestCommand, "exits": exits.Command, "eventually": eventuallyCommand,
					"sshkey": sshKeyCommand,
					"shared": func(ts *testscript.TestScript, _ bool, _ []string) {
						ts.Check(c.kubeconfig(ts.Getenv("KUBECONFIG"), c.shared(t).ns))
					},
				},
				Setup: func(env *testscript.Env) error { return c.setup(env, namespace) },
			})
		})
	}
}

// inOrder runs a script inside its test rather than beside it: the test has made the script's namespace.
type inOrder struct{ *testing.T }

func (inOrder) Parallel() {}

func (t inOrder) Run(_ string, f func(testscript.T)) { f(t) }

func (t inOrder) Verbose() bool { return testing.Verbose() }

func (c *cluster) setup(env *testscript.Env, namespace string) error {
	path := filepath.Join(env.WorkDir, "kubeconfig")
	if err := c.kubeconfig(path, namespace); err != nil {
		return err
	}
	for name, value := range map[string]string{
		"KUBECONFIG":      path,
		"NAMESPACE":       namespace,
		"DISK":            instance.TinyDisk(),
		"NO_COLOR":        "1",
		"HOME":            filepath.Join(env.WorkDir, "home"),
		"XDG_STATE_HOME":  filepath.Join(env.WorkDir, "state"),
		"XDG_CONFIG_HOME": filepath.Join(env.WorkDir, "config"),
		"PATH":            filepath.Dir(c.Bin("virtctl")) + string(os.PathListSeparator) + os.Getenv("PATH"),
	} {
		env.Setenv(name, value)
	}
	return os.Mkdir(filepath.Join(env.WorkDir, "home"), 0o700)
}

// kubeconfig writes one whose namespace is the given one.
func (c *cluster) kubeconfig(path, namespace string) error {
	config, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		return err
	}
	config.CurrentContext = c.Name
	config.Contexts[c.Name].Namespace = namespace
	return clientcmd.WriteToFile(*config, path)
}

func guestCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: guest NAME [ARGUMENTS...]")
	}
	password := ts.MkAbs("password-of-" + args[0])
	ts.Check(os.WriteFile(password, []byte("tiny"), 0o600))
	create := append([]string{
		"create", "vm", "--name", args[0], "--memory", "128Mi", "--termination-grace-period", "10",
		"--volume-containerdisk", "src:" + ts.Getenv("DISK"),
		"--user", "root", "--password-file", password, "--apply",
	}, args[1:]...)
	ts.Check(ts.Exec("virtctl", create...))
	ts.Check(ts.Exec("virtctl", "wait", args[0], "--for=login", "--timeout", "4m"))
}

func eventuallyCommand(ts *testscript.TestScript, neg bool, args []string) {
	var wanted *regexp.Regexp
	if len(args) > 1 && args[0] == "-stdout" {
		wanted, args = regexp.MustCompile(args[1]), args[2:]
	}
	if neg || len(args) < 1 {
		ts.Fatalf("usage: eventually [-stdout REGEXP] PROGRAM ARGUMENTS...")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience*time.Minute)
	defer cancel()
	for {
		err := ts.Exec(args[0], args[1:]...)
		if wanted == nil && err == nil || wanted != nil && wanted.MatchString(ts.ReadFile("stdout")) {
			return
		}
		select {
		case <-ctx.Done():
			ts.Fatalf("not within six minutes: %v", err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
