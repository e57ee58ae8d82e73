package root

import (
	"bytes"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

// painted is a sequence that chooses a colour or a style.
var painted = regexp.MustCompile("\x1b\\[[0-9;:]*m")

// TestNoColour runs every command on a terminal where NO_COLOR is set, which is streams without colour: nothing paints
// past the streams.
func TestNoColour(t *testing.T) {
	kubeconfig := hostileServer(t, false)
	dir := t.TempDir()
	manifest := filepath.Join(dir, "manifest.yaml")
	writeFile(t, manifest,
		"apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: demo, namespace: default}\n"+
			"spec: {runStrategy: Halted, template: {spec: {domain: {devices: {}}}}}\n")
	for _, variable := range []string{"XDG_STATE_HOME", "XDG_RUNTIME_DIR", "HOME"} {
		t.Setenv(variable, dir)
	}
	t.Setenv("KUBE_EDITOR", "true")
	wrote := 0
	for _, lines := range commandLines {
		for _, line := range lines {
			var stdout, stderr bytes.Buffer
			f := cli.NewFactory("virtctl", &cli.IOStreams{
				In: strings.NewReader("print \"x\"\n"), Out: &stdout, ErrOut: &stderr, OutIsTTY: true, ErrIsTTY: true,
			}, func(name string) string { return map[string]string{"KUBECONFIG": kubeconfig, "NO_COLOR": "1"}[name] })
			ctx, cancel := contextFor(t)
			words := strings.NewReplacer("FILE", manifest, "DIR", dir).Replace(line)
			// How it ends is for others to test.
			Run(ctx, f, append([]string{"--kubeconfig", kubeconfig}, fields(words)...))
			cancel()
			wrote += stdout.Len()
			if found := painted.FindString(stdout.String() + stderr.String()); found != "" {
				t.Errorf("virtctl %s: %q in:\n%q", line, found, stdout.String()+stderr.String())
			}
		}
	}
	if wrote == 0 {
		t.Error("nothing was written: the test tries nothing")
	}
}
