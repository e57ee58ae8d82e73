package ssh

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// tree is what is below a directory: the content of files by path, "/" for directories.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			out[name] = "/"
			return nil
		}
		data, err := os.ReadFile(path)
		out[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func plant(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if files[name] == "/" {
			err = errors.Join(err, os.MkdirAll(path, 0o755))
		} else {
			err = errors.Join(err, os.WriteFile(path, []byte(files[name]), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func same(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s: %d entries, want %d: %v, want %v", what, len(got), len(want), slices.Sorted(maps.Keys(got)),
			slices.Sorted(maps.Keys(want)))
	}
}

func TestCopy(t *testing.T) {
	m := newMachine(t)
	guest, here := m.Dir, t.TempDir()
	client := m.client(t)
	copier := func(c Copier) *Copier {
		if err := c.Open(client); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return &c
	}
	big := strings.Repeat("0123456789abcdef", 1<<17)
	source := map[string]string{
		"dir":         "/",
		"dir/a":       "alpha",
		"dir/empty":   "/",
		"dir/sub":     "/",
		"dir/sub/big": big,
		"dir/none":    "",
	}
	plant(t, here, source)
	when := time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)
	for _, name := range []string{"dir/a", "dir/sub"} {
		if err := errors.Join(os.Chmod(filepath.Join(here, name), 0o750),
			os.Chtimes(filepath.Join(here, name), when, when)); err != nil {
			t.Fatal(err)
		}
	}
	plain := copier(Copier{})
	recursive := copier(Copier{Recursive: true, Preserve: true})
	in := func(name string) string { return filepath.Join(here, name) }
	ctx := t.Context()

	if err := plain.Upload(ctx, []string{in("dir/a"), in("dir/sub/big")}, ""); err != nil {
		t.Error(err)
	}
	if err := plain.Upload(ctx, []string{in("dir/a")}, "~/named"); err != nil {
		t.Error(err)
	}
	same(t, "files", tree(t, guest), map[string]string{"a": "alpha", "big": big, "named": "alpha"})
	for _, bad := range []struct {
		sources []string
		to, err string
	}{
		{[]string{in("dir")}, "", "copy it with --recursive"},
		{[]string{in("dir/a"), in("dir/none")}, "named", "named in the guest is not a directory"},
		{[]string{in("dir/a")}, "nowhere/", "is not a directory"},
		{[]string{in("dir/a")}, "nowhere/x", "nowhere/x in the guest: file does not exist"},
		{[]string{in("nothing")}, "", "no such file"},
	} {
		if err := plain.Upload(ctx, bad.sources, bad.to); err == nil || !strings.Contains(err.Error(), bad.err) {
			t.Errorf("%v: %v, want %q", bad.sources, err, bad.err)
		}
	}
	// A directory to a name that is not there is that name; to one that is there it comes into it.
	for _, to := range []string{"new", "new"} {
		if err := recursive.Upload(ctx, []string{in("dir")}, to); err != nil {
			t.Error(err)
		}
	}
	want := map[string]string{}
	for name, content := range source {
		if name != "dir" {
			want[strings.TrimPrefix(name, "dir/")] = content
		}
		want[name] = content
	}
	same(t, "directories", tree(t, filepath.Join(guest, "new")), want)

	back := t.TempDir()
	if err := recursive.Download(ctx, []string{"new/dir"}, back); err != nil {
		t.Error(err)
	}
	if err := recursive.Download(ctx, []string{"new/dir"}, filepath.Join(back, "copy")); err != nil {
		t.Error(err)
	}
	if err := plain.Download(ctx, []string{"new/dir/[a]*", "~/named"}, back); err != nil {
		t.Error(err)
	}
	want = map[string]string{"a": "alpha", "named": "alpha", "copy": "/"}
	for name, content := range source {
		want[name] = content
		want["copy"+strings.TrimPrefix(name, "dir")] = content
	}
	same(t, "back", tree(t, back), want)
	for _, name := range []string{"dir/a", "dir/sub"} {
		info, err := os.Stat(filepath.Join(back, name))
		if err != nil || info.Mode().Perm() != 0o750 || !info.ModTime().Equal(when) {
			t.Errorf("%s: %v %v %v", name, info.Mode(), info.ModTime(), err)
		}
	}
	for _, bad := range [][2]string{
		{"nothing", "nothing in the guest: file does not exist"},
		{"no-*", "no-* in the guest: file does not exist"},
		{"new", "copy it with --recursive"},
	} {
		if err := plain.Download(ctx, []string{bad[0]}, back); err == nil || !strings.Contains(err.Error(), bad[1]) {
			t.Errorf("%s: %v, want %q", bad[0], err, bad[1])
		}
	}
	if err := plain.Download(ctx, []string{"a", "named"}, filepath.Join(back, "a")); err == nil ||
		!strings.Contains(err.Error(), "is not a directory") {
		t.Error(err)
	}
}

// Links that lead back end somewhere.
func TestCopyCircle(t *testing.T) {
	m := newMachine(t)
	if err := os.Symlink(".", filepath.Join(m.Dir, "again")); err != nil {
		t.Fatal(err)
	}
	c := Copier{Recursive: true}
	if err := c.Open(m.client(t)); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Download(t.Context(), []string{"again"}, filepath.Join(t.TempDir(), "x")); err == nil {
		t.Error("a circle has an end")
	}
}

func TestNamesThatAGuestSays(t *testing.T) {
	for name, ok := range map[string]bool{
		"a":        true,
		".profile": true,
		"a b":      true,
		"":         false,
		".":        false,
		"..":       false,
		"../x":     false,
		"/etc":     false,
		`a\b`:      false,
	} {
		if plain(name) != ok {
			t.Errorf("%q: %v", name, !ok)
		}
	}
}

func TestProgress(t *testing.T) {
	m := newMachine(t)
	plant(t, m.Dir, map[string]string{"f": strings.Repeat("x", 100_000)})
	var seen []string
	c := Copier{Progress: func(name string, done, total int64) {
		if done == 0 || done == total {
			seen = append(seen, fmt.Sprint(name, done, total))
		}
	}}
	if err := c.Open(m.client(t)); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Download(t.Context(), []string{"f"}, filepath.Join(t.TempDir(), "f")); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 2 || seen[0] != "f0 100000" || seen[1] != "f100000 100000" {
		t.Errorf("%q", seen)
	}
}

// A copy whose connection ends says so once, whatever else was to be copied.
func TestLostCopy(t *testing.T) {
	m, here := newMachine(t), t.TempDir()
	files := map[string]string{"a": strings.Repeat("x", 1<<20), "b": "beta", "dir": "/"}
	plant(t, m.Dir, files)
	plant(t, here, files)
	for name, cp := range map[string]func(c *Copier) error{
		"upload": func(c *Copier) error {
			return c.Upload(t.Context(), []string{filepath.Join(here, "a"), filepath.Join(here, "b")}, "dir")
		},
		"download": func(c *Copier) error {
			return c.Download(t.Context(), []string{"a", "b"}, filepath.Join(here, "dir"))
		},
	} {
		client := m.client(t)
		c := &Copier{Progress: func(string, int64, int64) { client.Close() }}
		if err := c.Open(client); err != nil {
			t.Fatal(err)
		}
		err := cp(c)
		if !errors.Is(err, ErrLost) || strings.Count(err.Error(), "lost") != 1 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		c.Close()
	}
}
