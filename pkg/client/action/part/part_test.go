package part

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func entries(t *testing.T, dir string) string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range list {
		names = append(names, entry.Name())
	}
	return strings.Join(names, " ")
}

type state struct{ Done int }

func open(t *testing.T, path string) *File {
	t.Helper()
	f, err := Open(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// What one run leaves, the next one has, with what was noted; what is finished or discarded leaves nothing else.
func TestPart(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "disk.img")
	f := open(t, path)
	var noted state
	if f.Noted(&noted) {
		t.Errorf("of nothing %+v is noted", noted)
	}
	if _, err := f.WriteString("half"); err != nil {
		t.Fatal(err)
	}
	for done := range 3 { // over the note before
		if err := f.Note(state{done}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(f.Leave(), f.Leave(), f.Discard()); err != nil {
		t.Error(err)
	}
	if got := entries(t, dir); got != ".disk.img.part .disk.img.part.json" {
		t.Errorf("left is %s", got)
	}
	f = open(t, path)
	if !f.Noted(&noted) || noted.Done != 2 {
		t.Errorf("%+v is noted", noted)
	}
	if _, err := f.WriteString("HALF"); err != nil {
		t.Fatal(err)
	}
	if err := f.Finish(); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "HALF" || entries(t, dir) != "disk.img" {
		t.Errorf("%q, %s: %v", data, entries(t, dir), err)
	}
	f = open(t, path)
	if err := errors.Join(f.Note(state{1}), f.Discard()); err != nil {
		t.Error(err)
	}
	if got := entries(t, dir); got != "disk.img" {
		t.Errorf("discarded, it leaves %s", got)
	}
}

// A note that cannot be read is none.
func TestDamagedNote(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	f := open(t, path)
	if err := os.WriteFile(f.note(), []byte(`{"Done":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if noted := (state{}); f.Noted(&noted) {
		t.Error("half a note is read")
	}
	if err := f.Discard(); err != nil {
		t.Error(err)
	}
}

// Two programs do not write one file.
func TestBusy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	f := open(t, path)
	if _, err := Open(path, 0o600); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), ".f.part") {
		t.Errorf("the second has it, too: %v", err)
	}
	if err := f.Finish(); err != nil {
		t.Fatal(err)
	}
	if err := open(t, path).Discard(); err != nil {
		t.Error(err)
	}
}

// Where others write, too, a link that they have put there is not followed, and leads to no other file.
func TestPlanted(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no links")
	}
	for kind, plant := range map[string]func(from, to string) error{"soft": os.Symlink, "hard": os.Link} {
		dir := t.TempDir()
		victim := filepath.Join(dir, "victim")
		if err := os.WriteFile(victim, []byte("data"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := plant(victim, filepath.Join(dir, ".f.part")); err != nil {
			t.Fatal(err)
		}
		if f, err := Open(filepath.Join(dir, "f"), 0o600); err == nil {
			t.Errorf("a %s link is followed: %v", kind, f.Discard())
		}
		if data, err := os.ReadFile(victim); err != nil || string(data) != "data" {
			t.Errorf("%q: %v", data, err)
		}
	}
}

// TestForeign: where others write, too, a link is followed only of those who could write the user's files anyway.
func TestForeign(t *testing.T) {
	const me, other, third = 1000, 1001, 1002
	for _, tc := range []struct {
		name      string
		link, dir int
		mode      fs.FileMode
		foreign   bool
	}{
		{"in a user's own directory", other, me, 0o755, false},
		{"in a group's directory", other, me, 0o775 | fs.ModeSetgid, true},
		{"in a group's directory of a third", other, third, 0o775, true},
		{"in everybody's directory", other, me, 0o777, true},
		{"in /tmp", other, 0, 0o777 | fs.ModeSticky, true},
		{"of nobody known", -1, me, 0o775, true},
		{"the user's own", me, 0, 0o777 | fs.ModeSticky, false},
		{"root's in /tmp", 0, 0, 0o777 | fs.ModeSticky, false},
		{"root's in a group's directory", 0, other, 0o775, false},
		{"the directory owner's", other, other, 0o777 | fs.ModeSticky, false},
	} {
		if got := foreign(tc.link, me, tc.dir, tc.mode); got != tc.foreign {
			t.Errorf("a link %s: foreign is %v", tc.name, got)
		}
	}
}

// TestPlantedTarget: a link of which nobody knows who put it there, as it has other names, is not followed where others
// write, too.
func TestPlantedTarget(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("a link has one name there, or no owner's ID")
	}
	dir := t.TempDir()
	victim, link := filepath.Join(dir, "victim"), filepath.Join(dir, "f")
	err := errors.Join(os.WriteFile(victim, []byte("data"), 0o600), os.Symlink(victim, filepath.Join(dir, "elsewhere")),
		os.Link(filepath.Join(dir, "elsewhere"), link))
	if err != nil {
		t.Fatal(err)
	}
	for mode, follows := range map[os.FileMode]bool{0o755: true, 0o775: false, 0o777: false} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		got, err := Target(link)
		if (err == nil) != follows || follows && got != victim || !follows && !errors.Is(err, errForeignLink) {
			t.Errorf("in a directory of mode %o it leads to %q, %v", mode, got, err)
		}
	}
}

// TestLinks: what a link leads to is written, be it there or not, and the link stays.
func TestLinks(t *testing.T) {
	dir := t.TempDir()
	store := filepath.Join(dir, "store")
	at := func(name string) string { return filepath.Join(dir, name) }
	err := errors.Join(os.Mkdir(store, 0o700), os.WriteFile(filepath.Join(store, "disk.img"), []byte("old"), 0o600),
		os.Symlink(filepath.Join("store", "disk.img"), at("relative")), os.Symlink("relative", at("chain")),
		os.Symlink(filepath.Join(store, "new.img"), at("dangling")), os.Symlink("store", at("way")),
		os.Symlink(filepath.Join("..", "beside.img"), filepath.Join(store, "up")), os.Symlink("loop", at("loop")))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"relative": "store/disk.img", "chain": "store/disk.img", "dangling": "store/new.img", "way/up": "beside.img",
		"plain": "plain",
	} {
		f := open(t, at(name))
		if got, err := filepath.EvalSymlinks(filepath.Dir(f.Name())); err != nil || got != filepath.Dir(at(want)) {
			t.Errorf("%s is written in %s, %v", name, got, err)
		}
		_, err := f.WriteString(name)
		if err := errors.Join(err, f.Finish()); err != nil {
			t.Error(err)
		}
		if got, err := os.ReadFile(at(want)); err != nil || string(got) != name {
			t.Errorf("%s: %s has %q, %v", name, want, got, err)
		}
		if info, err := os.Lstat(at(name)); err != nil || want != name && info.Mode()&os.ModeSymlink == 0 {
			t.Errorf("%s is no link any more: %v", name, err)
		}
	}
	if _, err := Open(at("loop"), 0o600); err == nil {
		t.Error("a loop of links is written")
	}
}
