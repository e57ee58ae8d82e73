package dashboardcmd

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/action/journal"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// TestImageIsRemoved deletes the claim that was shown, and the journal has it.
func TestImageIsRemoved(t *testing.T) {
	t.Parallel()
	var asked []string
	api := clienttest.New(t)
	api.Put("/api/v1/namespaces/prod/persistentvolumeclaims/debian-13", http.HandlerFunc(
		func(_ http.ResponseWriter, r *http.Request) { asked = append(asked, r.Method+" "+r.URL.Path) }))
	state := t.TempDir()
	f := cli.NewFactory("virtctl", cli.NoStreams(),
		func(name string) string { return map[string]string{"XDG_STATE_HOME": state}[name] })
	a := &actions{factory: f, client: api.Client(), rules: granted(map[string]*authorizationv1.SubjectRulesReviewStatus{
		"prod": {ResourceRules: []authorizationv1.ResourceRule{{
			Verbs: []string{"create"}, APIGroups: []string{"export.kubevirt.io"}, Resources: []string{page.Exports},
		}}},
	})}
	image := &store.Image{Namespace: "prod", Name: "debian-13", UID: "u1", Ref: "debian/13"}
	if err := a.RemoveImage(t.Context(), image); err != nil {
		t.Error(err)
	}
	// A copy that has no volume yet would lose what fills it.
	copied := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "web-disk"}}
	copied.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "debian-13"}
	copied.Status.Phase = corev1.ClaimPending
	api.Put("/api/v1/namespaces/prod/persistentvolumeclaims", corev1.PersistentVolumeClaimList{
		Items: []corev1.PersistentVolumeClaim{copied},
	})
	if err := a.RemoveImage(t.Context(), image); err == nil || !strings.Contains(err.Error(), "web-disk") {
		t.Errorf("with a copy that waits: %v", err)
	}
	want := []string{"DELETE /api/v1/namespaces/prod/persistentvolumeclaims/debian-13"}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Error(diff)
	}
	entries, err := journal.File{Path: filepath.Join(state, "virtkit", "journal.jsonl")}.Read()
	if err != nil || len(entries) != 1 || entries[0].Verb != "image rm" {
		t.Errorf("journal %+v, %v", entries, err)
	}
	api.Put("/api/v1/namespaces/prod/persistentvolumeclaims", corev1.PersistentVolumeClaimList{})
	if err := a.RemoveImage(t.Context(), &store.Image{Namespace: "prod", Name: "debian-13", UID: "u1"}); err != nil {
		t.Errorf("an upload without an image: %v", err)
	}
	entries, err = journal.File{Path: filepath.Join(state, "virtkit", "journal.jsonl")}.Read()
	if err != nil || !slices.ContainsFunc(entries, func(e journal.Entry) bool {
		return slices.Equal(e.Arguments, []string{"prod/debian-13"})
	}) {
		t.Errorf("journal %+v, %v", entries, err)
	}
	if why := a.ForbiddenTo("prod", "create", page.Exports); why != "" {
		t.Errorf("what is allowed is refused: %s", why)
	}
	if why := a.ForbiddenTo("prod", "create", "persistentvolumeclaims"); why == "" {
		t.Error("what is not allowed is not refused")
	}
}

// TestExportFile: only a regular file in a directory that is there is written.
func TestExportFile(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	old := filepath.Join(dir, "old.tar")
	if err := os.WriteFile(old, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a := &actions{factory: &cli.Factory{Program: "virtctl"}}
	file := func(name string) page.Export { return page.Export{Key: store.Key{Name: "db"}, File: name} }
	for name, want := range map[string]string{
		"x.ova": "`virtctl vmexport download db --vm=db --format=ova --output=x.ova`",
		"":      "give one", "-": "a backup cannot be written to a pipe", dir: "is no regular file",
		filepath.Join(dir, "no", "x.tar"): "there is no directory", filepath.Join(old, "x.tar"): "not a directory",
	} {
		if _, _, err := a.ExportFile(file(name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, not %q", name, err, want)
		}
	}
	for name, there := range map[string]bool{old: true, filepath.Join(dir, "new.tar"): false} {
		path, is, err := a.ExportFile(file(name))
		if err != nil || path != name || is != there {
			t.Errorf("%s: %s, %t, %v", name, path, is, err)
		}
	}
	if path, is, err := a.ExportFile(file("~/old.tar")); path != old || !is || err != nil {
		t.Errorf("in the home directory: %s, %t, %v", path, is, err)
	}
}

// TestFailedExportLeavesNoFile exports a VM that is not there.
func TestFailedExportLeavesNoFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := &actions{
		factory: cli.NewFactory("virtctl", cli.NoStreams(), func(string) string { return "" }),
		client:  clienttest.New(t).Client(),
	}
	e := page.Export{Key: store.Key{Namespace: "prod", Name: "web"}, File: filepath.Join(dir, "web.tar")}
	if err := a.Export(t.Context(), e, &page.Transfer{}); err == nil {
		t.Error("what is not there was exported")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
