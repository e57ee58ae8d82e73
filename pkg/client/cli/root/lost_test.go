package root

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

// full is a device that has no room; tried is whether anything was written to it.
type full struct{ tried bool }

func (f *full) Write([]byte) (int, error) {
	f.tried = true
	return 0, errors.New("write: no space left on device")
}

// TestLostOutputIsAnError runs every command with a standard output that takes nothing: one that has written to it
// does not end with 0, and says why.
func TestLostOutputIsAnError(t *testing.T) {
	kubeconfig := hostileServer(t, false)
	dir := t.TempDir()
	manifest := filepath.Join(dir, "manifest.yaml")
	writeFile(t, manifest, "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: demo}\n"+
		"spec: {runStrategy: Halted, template: {spec: {domain: {devices: {}}}}}\n")
	for _, variable := range []string{"XDG_STATE_HOME", "XDG_RUNTIME_DIR", "HOME"} {
		t.Setenv(variable, dir)
	}
	lines := []string{"--help", "--version", "start --help", "options", "wait demo --for jsonpath={.kind} -o name"}
	for name, of := range commandLines {
		if name != "edit" { // it has the editor's screen
			lines = append(lines, of...)
		}
	}
	tried := 0
	for _, line := range lines {
		var out full
		var errOut bytes.Buffer
		streams := &cli.IOStreams{In: strings.NewReader("print \"x\"\n"), Out: &out, ErrOut: &errOut}
		f := cli.NewFactory("virtctl", streams,
			func(name string) string { return map[string]string{"KUBECONFIG": kubeconfig}[name] })
		ctx, cancel := contextFor(t)
		args := fields(strings.ReplaceAll(strings.ReplaceAll(line, "FILE", manifest), "DIR", dir))
		code := Run(ctx, f, append([]string{"--kubeconfig", kubeconfig}, args...))
		cancel()
		if out.tried && (code == cli.ExitOK || errOut.Len() == 0) {
			t.Errorf("virtctl %s ends with %d, and says %q, though its output is lost", line, code, errOut.String())
		}
		if out.tried {
			tried++
		}
	}
	if tried < len(lines)/2 {
		t.Errorf("only %d of %d commands have written anything: the test tries nothing", tried, len(lines))
	}
}
