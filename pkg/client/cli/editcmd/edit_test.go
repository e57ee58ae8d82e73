package editcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/action/diff"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/clitest"
)

// TestFixable has which errors open the editor again, and which end the command since no other text helps.
func TestFixable(t *testing.T) {
	resource := schema.GroupResource{Group: "kubevirt.io", Resource: "virtualmachines"}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"invalid":            {apierrors.NewInvalid(v1.VirtualMachineGroupVersionKind.GroupKind(), "web", nil), true},
		"bad request":        {apierrors.NewBadRequest("no"), true},
		"no YAML":            {errors.New("line 3: mapping values are not allowed"), true},
		"denied":             {apierrors.NewForbidden(resource, "web", errors.New("webhook denied the request")), true},
		"no right":           {apierrors.NewForbidden(resource, "web", errors.New("no RBAC policy matched")), false},
		"gone":               {apierrors.NewNotFound(resource, "web"), false},
		"changed meanwhile":  {fmt.Errorf("store: %w", &diff.ChangedError{}), false},
		"interrupted":        {context.Canceled, false},
		"unreachable":        {&url.Error{Op: "Patch", URL: "https://a", Err: errors.New("refused")}, false},
		"unreadable answer":  {fmt.Errorf("store: %w", &client.AnswerError{}), false},
		"too many requests":  {apierrors.NewTooManyRequests("later", 1), false},
		"server's own error": {apierrors.NewInternalError(errors.New("etcd")), false},
	} {
		refused, err := fixable(test.err)
		if (refused != nil) != test.want || (err != nil) == test.want {
			t.Errorf("%s: refused %v, error %v", name, refused, err)
		}
	}
}

// editing runs `virtctl edit` with a program as editor, and files that are kept in a directory of the test's.
func editing(t *testing.T, api *clienttest.API, script string, args ...string) (string, string, error) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	program := filepath.Join(dir, "editor")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	return clitest.Command{
		New: NewCmdEdit, Kubeconfig: api.Kubeconfig("team-a"), Env: map[string]string{"EDITOR": program},
	}.Run(t, args...)
}

const at = "/apis/kubevirt.io/v1/namespaces/team-a/virtualmachines/web"

// server has VM web; a change of it gets the answer.
func server(t *testing.T, answer func(w http.ResponseWriter, patch string)) *clienttest.API {
	t.Helper()
	api := clienttest.New(t)
	vm, err := json.Marshal(&v1.VirtualMachine{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "VirtualMachine"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "web", ResourceVersion: "1"},
		Spec: v1.VirtualMachineSpec{
			RunStrategy: new(v1.RunStrategyHalted), Template: &v1.VirtualMachineInstanceTemplateSpec{},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	api.Put(at, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			if _, err := w.Write(vm); err != nil {
				t.Error(err)
			}
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		answer(w, string(body))
	}))
	return api
}

// refuse answers with an API server's error.
func refuse(t *testing.T, err *apierrors.StatusError) func(http.ResponseWriter, string) {
	return func(w http.ResponseWriter, _ string) {
		status := err.Status()
		status.Kind, status.APIVersion = "Status", "v1"
		w.WriteHeader(int(status.Code))
		if err := json.NewEncoder(w).Encode(status); err != nil {
			t.Error(err)
		}
	}
}

// What the server refuses is opened again with its reason above, once; a text that stays as it was is kept in a file.
func TestRefused(t *testing.T) {
	api := server(t, refuse(t, apierrors.NewBadRequest("a guest\nneeds memory")))
	out, errOut, err := editing(t, api, `cat "$1" >>"$TMPDIR/seen"
sed -i s/Halted/Always/ "$1"
`, "web")
	if err == nil || !strings.Contains(err.Error(), "edit web: ") || cli.ExitCode(err) != cli.ExitFailure || out != "" {
		t.Errorf("%q, %v", out, err)
	}
	seen, readErr := os.ReadFile(filepath.Join(os.Getenv("TMPDIR"), "seen"))
	if readErr != nil || strings.Count(string(seen), "# team-a/web: ") != 2 ||
		!strings.Contains(string(seen), "# Error: a guest\n# Error: needs memory\n") {
		t.Errorf("%v, the editor showed\n%s", readErr, seen)
	}
	_, kept, found := strings.Cut(errOut, "note: your text is in ")
	text, readErr := os.ReadFile(strings.TrimSpace(kept))
	if !found || readErr != nil || !strings.Contains(string(text), "runStrategy: Always") {
		t.Errorf("stderr %q, %v, kept\n%s", errOut, readErr, text)
	}
}

// Without the right to change it the text is kept, and the editor is not opened again.
func TestNotAllowed(t *testing.T) {
	api := server(t, refuse(t, apierrors.NewForbidden(schema.GroupResource{Resource: "virtualmachines"}, "web", nil)))
	_, errOut, err := editing(t, api, `echo >>"$TMPDIR/opened"
sed -i s/Halted/Always/ "$1"
`, "web")
	if cli.ExitCode(err) != cli.ExitNotAllowed || !strings.Contains(errOut, "note: your text is in ") {
		t.Errorf("stderr %q, %v", errOut, err)
	}
	opened, err := os.ReadFile(filepath.Join(os.Getenv("TMPDIR"), "opened"))
	if err != nil || string(opened) != "\n" {
		t.Errorf("%q, %v", opened, err)
	}
}

// An editor that fails or leaves nothing changes nothing and keeps no file; one that is missing is said so.
func TestNothingIsStored(t *testing.T) {
	for name, test := range map[string]struct {
		script, stderr string
		fails          bool
	}{
		"left as it was": {"", "note: edit cancelled, no changes made\n", false},
		"emptied":        {`: >"$1"`, "note: edit cancelled, no changes made\n", false},
		"fails":          {"exit 3", "", true},
	} {
		api := server(t, func(w http.ResponseWriter, patch string) {
			t.Errorf("%s: stores %s", name, patch)
			w.WriteHeader(http.StatusForbidden)
		})
		out, errOut, err := editing(t, api, test.script, "web")
		if (err != nil) != test.fails || out != "" || errOut != test.stderr {
			t.Errorf("%s: stdout %q, stderr %q, %v", name, out, errOut, err)
		}
	}
	api := clienttest.New(t)
	if _, _, err := editing(t, api, `touch "$TMPDIR/opened"`, "ghost"); cli.ExitCode(err) != cli.ExitNotFound {
		t.Errorf("ghost: %v", err)
	}
	if _, err := os.Stat(filepath.Join(os.Getenv("TMPDIR"), "opened")); err == nil {
		t.Error("the editor is opened for a VM that is not there")
	}
}
