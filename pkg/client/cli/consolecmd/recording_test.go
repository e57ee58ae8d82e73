package consolecmd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/action/part"
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
		if err := out.connected(); err != nil {
			t.Fatal(err)
		}
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

// TestRecordingInUse: a recording that another session writes is refused before the console is opened, which would take
// the console from that session.
func TestRecordingInUse(t *testing.T) {
	file, link := recordings(t)
	other, err := part.Open(file, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	o := options(&bytes.Buffer{})
	o.Record = link
	if err := Run(t.Context(), o); !errors.Is(err, part.ErrBusy) || !strings.HasPrefix(err.Error(), "--record: ") {
		t.Errorf("%v", err)
	}
	if err := other.Discard(); err != nil {
		t.Error(err)
	}
	expectFile(t, file, earlier)
}

// full makes a recording that is on a full disk from now on.
func full(t *testing.T, r *recording) {
	t.Helper()
	file, err := os.Open(r.file.Name()) // writes to it fail, and nothing else
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	was := r.file.File
	r.file.File = file
	t.Cleanup(func() { was.Close() })
}

// TestRecordingCut: a recording that could not be written to its end replaces no earlier one, and is left.
func TestRecordingCut(t *testing.T) {
	file, _ := recordings(t)
	o := options(&bytes.Buffer{})
	r := &recording{path: file, now: o.Factory.Now, ctx: t.Context(), term: newScreen(o.Factory.IO, "demo", false)}
	if err := errors.Join(r.take(), r.begin()); err != nil {
		t.Fatal(err)
	}
	full(t, r)
	if _, err := r.Write([]byte("login: ")); err == nil {
		t.Fatal("a full disk takes more")
	}
	left := filepath.Join(filepath.Dir(file), ".demo.cast.part")
	if err := r.end(); err == nil || !strings.Contains(err.Error(), left) {
		t.Errorf("%v does not name what is left", err)
	}
	expectFile(t, file, earlier)
	expectFile(t, left, `{"version":2,`)
}

// TestRecordingOfNothing: a console that was left before anything was seen takes nothing from an earlier recording.
func TestRecordingOfNothing(t *testing.T) {
	file, _ := recordings(t)
	o := options(&bytes.Buffer{})
	for path, want := range map[string]string{
		file: earlier, filepath.Join(filepath.Dir(file), "first.cast"): `{"version":2,`,
	} {
		r := &recording{path: path, now: o.Factory.Now, ctx: t.Context(), term: newScreen(o.Factory.IO, "demo", false)}
		if err := errors.Join(r.take(), r.begin(), r.end()); err != nil {
			t.Error(err)
		}
		expectFile(t, path, want)
		if _, err := os.Lstat(r.file.Name()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("what was to replace %s is left: %v", path, err)
		}
	}
}

// TestRecordingThatCannotBegin ends a session as soon as it is open, also of a guest that writes nothing.
func TestRecordingThatCannotBegin(t *testing.T) {
	file, _ := recordings(t)
	o := options(&bytes.Buffer{})
	r := &recording{path: file, now: o.Factory.Now, ctx: t.Context(), term: newScreen(o.Factory.IO, "demo", false)}
	if err := r.take(); err != nil {
		t.Fatal(err)
	}
	full(t, r)
	here, there := net.Pipe()
	defer there.Close()
	dial := opening(func(context.Context) (io.ReadWriteCloser, error) { return here, nil }, r.begin)
	if _, err := dial(t.Context()); err == nil || !strings.Contains(err.Error(), "open the recording: ") {
		t.Errorf("%v", err)
	}
	if _, err := here.Write(nil); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the console is left open: %v", err)
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
	expectFile(t, file, earlier)
}

// TestRecordingNotBegun leaves what a session that was killed has recorded.
func TestRecordingNotBegun(t *testing.T) {
	file, _ := recordings(t)
	left := filepath.Join(filepath.Dir(file), ".demo.cast.part")
	if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &recording{path: file}
	if err := errors.Join(r.take(), r.end()); err != nil {
		t.Fatal(err)
	}
	expectFile(t, left, "half")
}
