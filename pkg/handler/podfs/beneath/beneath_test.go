package beneath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// hostile is a directory with one of everything that a file could be instead of a file, and a file outside of it.
func hostile(t *testing.T) (d *Dir, dir, outside string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may make device nodes")
	}
	dir, outside = t.TempDir(), filepath.Join(t.TempDir(), "outside")
	in := func(name string) string { return filepath.Join(dir, name) }
	check(t, os.WriteFile(outside, []byte("outside"), 0o600))
	check(t, os.WriteFile(in("file"), []byte("file"), 0o600))
	check(t, os.Symlink(outside, in("link")))
	check(t, os.Symlink(filepath.Dir(outside), in("way")))
	check(t, os.Symlink("file", in("inner")))
	check(t, unix.Mkfifo(in("fifo"), 0o600))
	check(t, unix.Mknod(in("device"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	check(t, os.Mkdir(in("dir"), 0o755))
	d, err := Open(dir)
	check(t, err)
	t.Cleanup(d.Close)
	return d, dir, outside
}

func unchanged(t *testing.T, outside string) {
	t.Helper()
	var stat unix.Stat_t
	check(t, unix.Stat(outside, &stat))
	if stat.Mode != unix.S_IFREG|0o600 || stat.Uid != 0 || stat.Nlink != 1 {
		t.Errorf("the file outside was changed: mode %o, owner %d, %d names", stat.Mode, stat.Uid, stat.Nlink)
	}
}

// Nothing but a regular file is opened, and the file is the one that was looked at.
func TestRegular(t *testing.T) {
	d, dir, outside := hostile(t)
	for _, name := range []string{"link", "inner", "fifo", "device", "dir", "."} {
		node, err := d.Find(name)
		check(t, err)
		if f, _, err := node.Regular(); !errors.Is(err, ErrNotRegular) {
			t.Errorf("%s: %v, %v", name, f, err)
		}
		node.Close()
	}
	for name, want := range map[string]error{
		"way/outside": unix.ELOOP, "../" + filepath.Base(dir) + "/file": unix.EXDEV, "none": fs.ErrNotExist,
		"fifo/x": unix.ENOTDIR,
	} {
		if _, err := d.Find(name); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	node, err := d.Find("file")
	check(t, err)
	defer node.Close()
	check(t, os.Remove(filepath.Join(dir, "file")))
	check(t, os.Symlink(outside, filepath.Join(dir, "file")))
	f, size, err := node.Regular()
	check(t, err)
	defer f.Close()
	var text [10]byte
	if n, err := f.Read(text[:]); err != nil || string(text[:n]) != "file" || size != 4 {
		t.Errorf("read %q of %d bytes, %v", text[:n], size, err)
	}
}

// Links and regular files are given to nobody, and nobody may do more with them.
func TestGiveAndChmod(t *testing.T) {
	d, dir, outside := hostile(t)
	check(t, os.Link(filepath.Join(dir, "file"), filepath.Join(dir, "hard")))
	for _, name := range []string{"link", "inner", "fifo", "file", "hard", "dir"} {
		node, err := d.Find(name)
		check(t, err)
		if err := node.Give(107, 107); err == nil {
			t.Errorf("%s was given away", name)
		}
		if err := node.Chmod(0o666); err == nil {
			t.Errorf("%s was opened to all", name)
		}
		node.Close()
	}
	node, err := d.Find("device")
	check(t, err)
	defer node.Close()
	check(t, node.Give(107, 107))
	check(t, node.Chmod(0o640))
	var stat unix.Stat_t
	check(t, unix.Lstat(filepath.Join(dir, "device"), &stat))
	if stat.Uid != 107 || stat.Mode != unix.S_IFCHR|0o640 {
		t.Errorf("owner %d, mode %o", stat.Uid, stat.Mode)
	}
	unchanged(t, outside)
}

// What is made is made in the directory, and nothing that is there is taken for it.
func TestMake(t *testing.T) {
	d, dir, outside := hostile(t)
	device := Device{Kind: unix.S_IFCHR, Number: unix.Mkdev(1, 5)}
	for _, name := range []string{"link", "inner", "fifo", "file", "dir", "device"} {
		if node, err := d.MakeDevice(name, device, 0o600); !errors.Is(err, ErrNotDevice) {
			t.Errorf("device %s: %v, %v", name, node, err)
		}
		if err := d.MakeFile(name, 1, 107, 107, 0o660); !errors.Is(err, fs.ErrExist) {
			t.Errorf("file %s: %v", name, err)
		}
		if sub, err := d.MakeDir(name, 0o755); err == nil {
			sub.Close()
			if name != "dir" {
				t.Errorf("directory %s", name)
			}
		}
	}
	for _, name := range []string{"", ".", "..", "a/b", "way/new", "/x", "a\x00b"} {
		_, device := d.MakeDevice(name, device, 0o600)
		_, directory := d.MakeDir(name, 0o755)
		_, path := d.Path(name)
		for what, err := range map[string]error{
			"device":           device,
			"directory":        directory,
			"path":             path,
			"file":             d.MakeFile(name, 1, 107, 107, 0o660),
			"remove":           d.Remove(name),
			"remove directory": d.RemoveDir(name),
		} {
			if !errors.Is(err, errName) {
				t.Errorf("%s %q: %v", what, name, err)
			}
		}
	}
	check(t, d.MakeFile("new", 5, 107, 107, 0o660))
	var stat unix.Stat_t
	check(t, unix.Lstat(filepath.Join(dir, "new"), &stat))
	if stat.Mode != unix.S_IFREG|0o660 || stat.Uid != 107 || stat.Gid != 107 || stat.Size != 5 || stat.Nlink != 1 {
		t.Errorf("%+v", stat)
	}
	check(t, d.Remove("link"))
	if err := d.Remove("dir"); !errors.Is(err, unix.EISDIR) {
		t.Errorf("remove a directory: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".*.new"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	unchanged(t, outside)
}

// Another mount is entered only where that is asked for.
func TestMounts(t *testing.T) {
	d, dir, _ := hostile(t)
	if err := unix.Mount("none", filepath.Join(dir, "dir"), "tmpfs", 0, ""); err != nil {
		t.Skipf("cannot mount: %v", err)
	}
	t.Cleanup(func() { check(t, unix.Unmount(filepath.Join(dir, "dir"), 0)) })
	check(t, os.WriteFile(filepath.Join(dir, "dir/file"), nil, 0o600))
	if _, err := d.Dir("dir"); !errors.Is(err, unix.EXDEV) {
		t.Errorf("directory: %v", err)
	}
	if _, err := d.Find("dir/file"); !errors.Is(err, unix.EXDEV) {
		t.Errorf("file: %v", err)
	}
	mount, err := d.Mount("dir")
	check(t, err)
	defer mount.Close()
	node, err := mount.Find("file")
	check(t, err)
	node.Close()
	node, err = d.FindMounted("dir/file")
	check(t, err)
	node.Close()
}

func TestList(t *testing.T) {
	d, dir, _ := hostile(t)
	sub, err := d.Dir("dir")
	check(t, err)
	defer sub.Close()
	for i := range 300 {
		check(t, os.WriteFile(filepath.Join(dir, "dir", fmt.Sprint(i)), nil, 0o600))
	}
	for most, want := range map[int]int{300: 300, 1000: 300, 299: 0} {
		entries, err := sub.List(most)
		if len(entries) != want || (err == nil) != (want > 0) {
			t.Errorf("%d: %d entries, %v", most, len(entries), err)
		}
	}
}
