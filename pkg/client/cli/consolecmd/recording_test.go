package consolecmd

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

const earlier = "an earlier recording\n"

// recordings makes a directory with an earlier recording, and a link to it.
func recordings(t *testing.T) (file, link string) {
	t.Helper()
	dir := t.TempDir()
	file, link = filepath.Join(dir, "kept", "demo.cast"), filepath.Join(dir, "demo.cast")
	err := errors.Join(os.Mkdir(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(earlier), 0o600),
		os.Symlink(filepath.Join("kept", "demo.cast"), link))
	if err != nil {
		t.Fatal(err)
	}
	return file, link
}

func expectFile(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(got), want) {
		t.Errorf("%s has %q, %v; want %q", path, got, err, want)
	}
}

// TestRecordingWithoutConnection: a console that is not opened takes nothing from an earlier recording.
func TestRecordingWithoutConnection(t *testing.T) {
	file, _ := recordings(t)
	o := options(&bytes.Buffer{})
	o.Record = file
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Run(ctx, o); err == nil {
		t.Error("a session without a server ends well")
	}
	expectFile(t, file, earlier)
	if list, err := os.ReadDir(filepath.Dir(file)); err != nil || len(list) != 1 {
		t.Errorf("beside it is %v, %v", list, err)
	}
}

// TestRecordingReplaces: the earlier recording is replaced whole when the session ends, and a link to it stays.
func TestRecordingReplaces(t *testing.T) {
	file, link := recordings(t)
	o := options(&bytes.Buffer{})
	o.Record = link
	out, err := o.outputs(t.Context(), newScreen(o.Factory.IO, "demo", false))
	if err != nil {
		t.Fatal(err)
	}
	expectFile(t, file, earlier)
	for range 2 { // it is connected again
		out.connected()
	}
	if _, err := out.Write([]byte("login: ")); err != nil {
		t.Fatal(err)
	}
	expectFile(t, file, earlier)
	if err := out.done(); err != nil {
		t.Fatal(err)
	}
	expectFile(t, file, `{"version":2,`)
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is now %v, %v", info, err)
	}
	if list, err := os.ReadDir(filepath.Dir(file)); err != nil || len(list) != 1 {
		t.Errorf("beside it is %v, %v", list, err)
	}
}

// TestRecordingThatCannotBe is refused before the console is opened.
func TestRecordingThatCannotBe(t *testing.T) {
	o := options(&bytes.Buffer{})
	o.Record = filepath.Join(t.TempDir(), "no", "demo.cast")
	err := Run(t.Context(), o)
	if cli.ExitCode(err) != cli.ExitUsage || !strings.Contains(err.Error(), "make it first: mkdir -p") {
		t.Errorf("%v", err)
	}
}
