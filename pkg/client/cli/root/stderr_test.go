package root

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// piped are the beginnings of lines that standard error has where it is no terminal: docs/output.md, Streams. Hints and
// progress have none of them.
var piped = regexp.MustCompile(`^((error|warning|Warning|note|interrupted): .*` +
	`|No .* found.*|\S+/\S+ is \w+; connections wait for it.*|See '.* --help'\.)$`)

// TestStderrOfPipes runs every command with a standard error that is no terminal: it has errors, warnings, notes and
// that there is nothing, and no hint.
func TestStderrOfPipes(t *testing.T) {
	kubeconfig := hostileServer(t, false)
	dir := t.TempDir()
	manifest := filepath.Join(dir, "manifest.yaml")
	writeFile(t, manifest,
		"apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: demo, "+
			"namespace: default}\nspec: {runStrategy: Halted, template: {spec: {domain: {devices: {}}}}}\n")
	for _, variable := range []string{"XDG_STATE_HOME", "XDG_RUNTIME_DIR", "HOME"} {
		t.Setenv(variable, dir)
	}
	t.Setenv("KUBE_EDITOR", "sed -i s/^spec:/spec:\\n__running:_true/;s/__/\\x20\\x20/;s/:_true/:\\x20true/")
	tried := 0
	for name, lines := range commandLines {
		if name == "edit" || name == "help, completion" { // it has the editor's screen; cobra's own
			continue
		}
		for _, line := range lines {
			line = strings.ReplaceAll(strings.ReplaceAll(line, "FILE", manifest), "DIR", dir)
			_, errOut := runHostile(t, kubeconfig, fields(line))
			for text := range strings.Lines(errOut) {
				if text = strings.TrimSuffix(text, "\n"); !piped.MatchString(text) {
					t.Errorf("virtctl %s: standard error has %q", line, text)
				}
				tried++
			}
		}
	}
	if tried < 20 {
		t.Errorf("only %d lines were written: the test tries nothing", tried)
	}
}

// waits are the command lines that wait, each for a moment.
var waits = []string{
	"wait demo --for condition=Nothing --timeout 50ms", "wait demo --for login --timeout 50ms",
	"start demo --wait --timeout 50ms", "stop demo --yes --wait --timeout 50ms",
	"restart demo --yes --wait --timeout 50ms", "pause demo --wait --timeout 50ms",
	"delete demo --yes --wait --timeout 50ms", "migrate demo --wait --timeout 50ms",
	"addvolume demo --volume-name disk --wait --timeout 50ms",
	"removevolume demo --volume-name disk --wait --timeout 50ms",
	"memory-dump get demo --claim-name disk --wait --timeout 50ms", "memory-dump remove demo --wait --timeout 50ms",
	"snapshot create demo --partial --wait --timeout 50ms",
	"snapshot restore snap --target copy --wait --timeout 50ms", "clone snap --from-snapshot --wait --timeout 50ms",
	"rename demo other --yes --timeout 50ms",
	"scale vmpool/sites --replicas 0 --wait --timeout 50ms", "scale vmpool/sites --replicas 3 --wait --timeout 50ms",
	"evacuate node1 --yes --timeout 50ms",
	"install --timeout 50ms", "uninstall --yes --timeout 50ms", "ssh root@demo --timeout 50ms true",
	"vnc screenshot demo -f DIR/x", "guestfs disk --timeout 50ms",
}

// TestNoDeadlineIsShown runs what waits against a server whose objects stay as they are, and against one that answers
// nothing any more after some requests: Go's words for a time that ran out are never shown.
func TestNoDeadlineIsShown(t *testing.T) {
	dir := t.TempDir()
	for _, variable := range []string{"XDG_STATE_HOME", "XDG_RUNTIME_DIR", "HOME"} {
		t.Setenv(variable, dir)
	}
	steady := steadyServer(t)
	// A server does not notice that a client has gone whose body it has not read.
	over := make(chan struct{})
	defer close(over)
	var group sync.WaitGroup
	defer group.Wait()
	for _, answers := range []int64{1 << 20, 2} {
		for _, line := range waits {
			var asked atomic.Int64
			kubeconfig := server(t, func(w http.ResponseWriter, r *http.Request) {
				if asked.Add(1) > answers {
					select {
					case <-r.Context().Done():
					case <-over:
					}
					return
				}
				steady(w, r)
			})
			group.Go(func() {
				words := fields(strings.ReplaceAll(line, "DIR", dir))
				out, errOut := runHostile(t, kubeconfig, append([]string{"--request-timeout", "200ms"}, words...))
				for _, words := range []string{
					"deadline exceeded", "context deadline", "i/o timeout", "Client.Timeout",
				} {
					if strings.Contains(out+errOut, words) {
						t.Errorf("virtctl %s, after %d answers:\n%s%s", line, answers, out, errOut)
					}
				}
			})
		}
	}
}

// steadyServer answers as hostileServer, in harmless words.
func steadyServer(t *testing.T) http.HandlerFunc {
	objects := objectsOf(t)
	return func(w http.ResponseWriter, r *http.Request) {
		code, answer := http.StatusOK, answerTo(objects, r)
		if answer == nil {
			code = http.StatusNotFound
			answer = map[string]any{
				"kind":       "Status",
				"apiVersion": "v1",
				"status":     "Failure",
				"code":       code,
				"reason":     "NotFound",
				"message":    "not found",
			}
		}
		data, err := json.Marshal(answer)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = w.Write(data) // a client that has gone
	}
}
