package diffcmd

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/action/diff"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/vm/rollout"
)

// run runs `virtctl diff` in a context whose namespace is team-a.
func run(t *testing.T, stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errOut bytes.Buffer
	streams := &cli.IOStreams{In: strings.NewReader(stdin), Out: &out, ErrOut: &errOut}
	f := cli.NewFactory("virtctl", streams, func(string) string { return "" })
	cmd := NewCmdDiff(f)
	f.Flags.AddFlags(cmd.PersistentFlags())
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	f.IO.Flush()
	return out.String(), errOut.String(), err
}

const manifest = `apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: new}
spec: {runStrategy: Halted, template: {spec: {domain: {devices: {}}}}}
`

// TestUsage has what no cluster is asked for, kubectl diff's exit codes in mind: 1 says that objects differ.
func TestUsage(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken.yaml")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"":                                 "-f is missing; it names a manifest, - is stdin",
		"-f - --force-conflicts":           "--force-conflicts needs --server-side",
		"-f - -o table":                    `unknown output format "table"`,
		"-f absent.yaml":                   "-f: absent.yaml: there is no such file here",
		"-f " + broken:                     "read " + broken + ": ",
		"-f " + broken + " -f absent.yaml": "read " + broken + ": ",
	} {
		_, _, err := run(t, "", append(strings.Fields(line), "--kubeconfig", "absent")...)
		if err == nil || !strings.HasPrefix(err.Error(), want) || cli.ExitCode(err) != 2 {
			t.Errorf("diff %s: %v, exit code %d", line, err, cli.ExitCode(err))
		}
	}
}

// TestFiles reads manifests of a directory and of stdin in their order, and leaves other files alone.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"b.yml": "kind: B", "a.yaml": "kind: A\n---\nkind: A2", "c.json": `{"kind":"C"}`,
		"readme.md": "{", "d.yaml.bak": "{",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "sub.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	o := &Options{Factory: cli.NewFactory("virtctl", &cli.IOStreams{In: strings.NewReader("kind: S")}, os.Getenv)}
	for name, want := range map[string]string{dir: "A A2 B C", filepath.Join(dir, "b.yml"): "B", "-": "S"} {
		objects, err := o.read(name)
		var got []string
		for _, object := range objects {
			got = append(got, object["kind"].(string))
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// TestExitCodes has how the command ends by what the server answers.
func TestExitCodes(t *testing.T) {
	const vms = "/apis/kubevirt.io/v1/namespaces/team-a/virtualmachines"
	created := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("dryRun") != "All" {
			t.Errorf("%s %s changes something", r.Method, r.URL)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		if _, err := w.Write(body); err != nil {
			t.Error(err)
		}
	})
	for name, test := range map[string]struct {
		answer         any
		stdin          string
		code           int
		stdout, stderr string
	}{
		"created": {
			answer: created, stdin: manifest, code: 1, stdout: "VirtualMachine team-a/new would be created\n",
		},
		"refused": {answer: clienttest.Forbidden("virtualmachines"), stdin: manifest, code: cli.ExitNotAllowed},
		"another kind": {
			stdin:  "apiVersion: v1\nkind: Pod\nmetadata: {name: p}",
			stderr: "note: stdin: there is no virtual machine in it",
		},
		"no name": {stdin: "kind: VirtualMachine", code: 2},
	} {
		api := clienttest.New(t)
		if test.answer != nil {
			api.Put(vms, test.answer)
		}
		out, errOut, err := run(t, test.stdin, "-f", "-", "--kubeconfig", api.Kubeconfig("team-a"))
		if cli.ExitCode(err) != test.code || out != test.stdout || !strings.HasPrefix(errOut, test.stderr) ||
			test.stderr == "" && errOut != "" {
			t.Errorf("%s: exit code %d, %v, stdout %q, stderr %q", name, cli.ExitCode(err), err, out, errOut)
		}
		if exit := (*cli.ExitError)(nil); test.code == 1 && (!errors.As(err, &exit) || exit.Err != nil) {
			t.Errorf("%s: a difference is said to be an error: %v", name, err)
		}
	}
}

// TestPrint has the lines of each kind of change.
func TestPrint(t *testing.T) {
	report := &diff.Report{
		Objects: []diff.Object{
			{Kind: "VirtualMachine", Namespace: "a", Name: "new"},
			{Kind: "VirtualMachine", Namespace: "a", Name: "same", Exists: true, Running: true},
			{Kind: "VirtualMachine", Namespace: "a", Name: "web", Exists: true, Running: true, Changes: []diff.Change{
				{Path: "spec.x", Effect: rollout.Restart, Before: 1, After: nil, Note: "the guest stops"},
				{Path: "spec.y", Effect: rollout.Live, Before: "", After: "two words"},
			}},
			{Kind: "VirtualMachine", Namespace: "b", Name: "off", Exists: true, Changes: []diff.Change{
				{Path: "spec.z", Effect: rollout.Start, Before: []any{"a"}, After: map[string]any{"b": true}},
			}},
		},
		Skipped: []diff.Object{{Kind: "Pod", Name: "p"}},
	}
	const want = `VirtualMachine a/new would be created
VirtualMachine a/web, running
  restart  spec.x  1 → <none>      the guest stops
  live     spec.y  "" → two words
VirtualMachine b/off, not running
  start  spec.z  ["a"] → {"b":true}
`
	for _, tty := range []bool{false, true} {
		var out, errOut bytes.Buffer
		streams := &cli.IOStreams{Out: &out, ErrOut: &errOut, ErrIsTTY: tty}
		o := &Options{Factory: cli.NewFactory("virtctl", streams, os.Getenv)}
		if err := o.print(report); err != nil {
			t.Fatal(err)
		}
		if strings.Join(strings.Fields(out.String()), " ") != strings.Join(strings.Fields(want), " ") {
			t.Errorf("got\n%swant\n%s", out.String(), want)
		}
		if note := "note: Pod p: not compared; kubectl diff does\n"; (errOut.String() == note) != tty {
			t.Errorf("on a terminal %t: stderr %q", tty, errOut.String())
		}
	}
}

// TestHintRestart says how a guest gets what waits for its restart, where there is such a change and who reads it.
func TestHintRestart(t *testing.T) {
	waiting, live := []diff.Change{{Effect: rollout.Restart}}, []diff.Change{{Effect: rollout.Live}}
	for _, test := range []struct {
		changes []diff.Change
		tty     bool
		want    string
	}{
		{waiting, true, "What says restart waits for: virtctl restart web -n a\n"},
		{waiting, false, ""},
		{live, true, ""},
	} {
		var errOut bytes.Buffer
		streams := &cli.IOStreams{ErrOut: &errOut, ErrIsTTY: test.tty}
		f := cli.NewFactory("virtctl", streams, func(string) string { return "" })
		HintRestart(f, cli.Target{Namespace: "a", Name: "web"}, test.changes)
		if errOut.String() != test.want {
			t.Errorf("%v on a terminal %t: %q", test.changes, test.tty, errOut.String())
		}
	}
}

func TestValue(t *testing.T) {
	for want, v := range map[string]any{
		"<none>": nil, `""`: "", "web": "web", `"a\nb"`: "a\nb", "1": 1, "true": true, `"say \"hi\""`: `say "hi"`,
		strings.Repeat("x", 59) + "…": strings.Repeat("x", 61), strings.Repeat("y", 60): strings.Repeat("y", 60),
	} {
		if got := value(v); got != want {
			t.Errorf("%#v: %s, want %s", v, got, want)
		}
	}
}
