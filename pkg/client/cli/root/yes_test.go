package root

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

// asksFirst are the verbs that have --yes, with a line that needs it where nobody can be asked; where there is none,
// why.
var asksFirst = map[string]struct{ line, why string }{
	"stop":             {line: "stop --all"},
	"restart":          {line: "restart -l app=web"},
	"reset":            {line: "reset --all"},
	"soft-reboot":      {line: "soft-reboot --all"},
	"delete":           {line: "delete --all"},
	"snapshot create":  {line: "snapshot create --all"},
	"snapshot restore": {line: "snapshot restore snap --stop"},
	"snapshot delete":  {line: "snapshot delete snap"},
	"uninstall":        {line: "uninstall"},
	"image rm":         {why: "it asks when the image is there: imagecmd.TestRemoveAsks"},
	"evacuate":         {why: "it depends on the plan: evacuatecmd.TestNobodyCanBeAsked"},
	"rename":           {why: "it is asked of a VM that is stopped, which keeps all that it has"},
	"start":            {why: "the guest loses nothing"},
	"pause":            {why: "the guest loses nothing"},
	"unpause":          {why: "the guest loses nothing"},
	"migrate":          {why: "the guest loses nothing"},
	"migrate-cancel":   {why: "the guest loses nothing"},
	"evacuate-cancel":  {why: "the guest loses nothing"},
}

// TestNobodyIsAsked runs each verb by which something is lost where nobody can be asked: it needs --yes, and sends
// nothing that changes anything.
func TestNobodyIsAsked(t *testing.T) {
	objects := objectsOf(t)
	writes := 0
	kubeconfig := server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			writes++
		}
		answerJSON(t, w, answerTo(objects, r))
	})
	all := verbs()
	for name, cmd := range all {
		entry, known := asksFirst[name]
		if has := cmd.Flags().Lookup("yes") != nil; has != known {
			t.Errorf("virtctl %s has --yes: %t, and is in asksFirst: %t", name, has, known)
		}
		if entry.line == "" {
			continue
		}
		var stdout, stderr bytes.Buffer
		f := cli.NewFactory("virtctl",
			&cli.IOStreams{In: strings.NewReader("yes\n"), Out: &stdout, ErrOut: &stderr},
			func(string) string { return "" })
		code := Run(t.Context(), f, append([]string{"--kubeconfig", kubeconfig}, fields(entry.line)...))
		if code != cli.ExitUsage || !strings.Contains(stderr.String(), "--yes") || writes > 0 {
			t.Errorf("virtctl %s: code %d, want %d; %d writes\n%s", entry.line, code, cli.ExitUsage, writes,
				stderr.String())
		}
	}
	for name := range asksFirst {
		if all[name] == nil {
			t.Errorf("there is no virtctl %s", name)
		}
	}
}

// answerJSON answers with an object, or that there is none.
func answerJSON(t *testing.T, w http.ResponseWriter, answer any) {
	t.Helper()
	w.Header().Set("Content-Type", "application/json")
	if answer == nil {
		w.WriteHeader(http.StatusNotFound)
		answer = map[string]any{
			"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": http.StatusNotFound,
			"reason": "NotFound", "message": "not found",
		}
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		t.Log(err) // a client that has gone
	}
}
