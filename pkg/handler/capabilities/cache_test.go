package capabilities

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/names"
)

const cacheFile = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.xml"

func statAt(seconds int64) func(string) (unix.Stat_t, error) {
	return func(path string) (unix.Stat_t, error) {
		if path != "/usr/bin/qemu-system-x86_64" {
			return unix.Stat_t{}, fs.ErrNotExist
		}
		return unix.Stat_t{Size: 5, Ctim: unix.Timespec{Sec: seconds}}, nil
	}
}

func keyAt(t *testing.T, image string, kvm bool, seconds int64) Key {
	t.Helper()
	key, err := NewKey(image, kvm, false, statAt(seconds))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func volume(t *testing.T) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

func put(t *testing.T, run *os.Root, name, content string) {
	t.Helper()
	if err := run.MkdirAll(names.CapabilityCacheDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := run.WriteFile(filepath.Join(names.CapabilityCacheDir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func reader(run *os.Root) func(string, int64) ([]byte, error) {
	return func(name string, limit int64) ([]byte, error) {
		f, err := run.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return io.ReadAll(io.LimitReader(f, limit))
	}
}

func description(ctime int64, more string) string {
	return fmt.Sprintf("<qemuCaps>\n<qemuctime>%d</qemuctime>%s</qemuCaps>", ctime, more)
}

func TestHarvestAndInstall(t *testing.T) {
	cache := &Cache{Dir: t.TempDir()}
	key := keyAt(t, "launcher:1", false, 1000)
	if there, err := cache.Install(key, volume(t)); there || err != nil {
		t.Fatalf("an empty cache installed: %v, %v", there, err)
	}
	const content = "<flag name='a'/>"
	for _, offered := range []string{content, "<flag name='forged'/>"} {
		first, second := volume(t), volume(t)
		put(t, first, cacheFile, description(1000, offered))
		put(t, first, "notes.txt", "ignored")
		if err := cache.Harvest(key, first, reader(first)); err != nil {
			t.Fatal(err)
		}
		for range 2 { // a launcher that has its copy keeps it
			if there, err := cache.Install(key, second); !there || err != nil {
				t.Fatalf("installed: %v, %v", there, err)
			}
		}
		got, err := second.ReadFile(filepath.Join(names.CapabilityCacheDir, cacheFile))
		if err != nil || string(got) != description(1000, content) {
			t.Errorf("the second launcher got %q, %v; want what the node had first", got, err)
		}
		info, err := second.Stat(filepath.Join(names.CapabilityCacheDir, cacheFile))
		if err != nil {
			t.Fatal(err)
		}
		var stat unix.Stat_t
		if err := unix.Stat(filepath.Join(second.Name(), names.CapabilityCacheDir), &stat); err != nil {
			t.Fatal(err)
		}
		if stat.Uid != names.User || info.Mode().Perm() != 0o600 {
			t.Errorf("owner %d, mode %v", stat.Uid, info.Mode())
		}
	}
}

func TestEachBootStartsAnew(t *testing.T) {
	dir, key := t.TempDir(), keyAt(t, "launcher:1", false, 1000)
	for _, boot := range []string{"first", "second"} {
		cache, run := &Cache{Dir: dir, Boot: boot}, volume(t)
		if there, err := cache.Install(key, run); there || err != nil {
			t.Fatalf("%s: installed: %v, %v", boot, there, err)
		}
		put(t, run, cacheFile, description(1000, ""))
		if err := cache.Harvest(key, run, reader(run)); err != nil {
			t.Fatal(err)
		}
		left, err := os.ReadDir(dir)
		if err != nil || len(left) != 1 || left[0].Name() != boot {
			t.Errorf("%s: the node keeps %v, %v", boot, left, err)
		}
	}
}

func TestKeysDiffer(t *testing.T) {
	base := keyAt(t, "a", false, 1)
	sev, err := NewKey("a", false, true, statAt(1))
	if err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string]Key{
		"sev":   sev,
		"image": keyAt(t, "b", false, 1), "kvm": keyAt(t, "a", true, 1), "ctime": keyAt(t, "a", false, 2),
	} {
		if other.hash == base.hash {
			t.Errorf("%s is not part of the key", name)
		}
	}
	if _, err := NewKey("a", false, false, func(string) (unix.Stat_t, error) { return unix.Stat_t{}, fs.ErrNotExist }); err == nil {
		t.Error("an image without QEMU has a key")
	}
}

func TestHarvestRefuses(t *testing.T) {
	key := keyAt(t, "launcher:1", false, 1000)
	for name, content := range map[string]string{
		"another QEMU":    description(999, ""),
		"no time":         "<qemuCaps/>",
		"another root":    "<domain><qemuctime>1000</qemuctime></domain>",
		"broken":          "<qemuCaps><qemuctime>1000</qemuctime>",
		"document type":   "<!DOCTYPE x [<!ENTITY a 'b'>]>" + description(1000, ""),
		"nested time":     "<qemuCaps><a><qemuctime>1000</qemuctime></a></qemuCaps>",
		"not text at all": "\x00\x01",
	} {
		t.Run(name, func(t *testing.T) {
			cache, run := &Cache{Dir: t.TempDir()}, volume(t)
			put(t, run, cacheFile, content)
			if err := cache.Harvest(key, run, reader(run)); err == nil {
				t.Error("taken")
			}
			if there, _ := cache.Install(key, volume(t)); there {
				t.Error("installed for others")
			}
		})
	}
	t.Run("too many files", func(t *testing.T) {
		cache, run := &Cache{Dir: t.TempDir()}, volume(t)
		for i := range maxFiles + 1 {
			put(t, run, strings.Repeat(fmt.Sprint(i), 40)+".xml", description(1000, ""))
		}
		if err := cache.Harvest(key, run, reader(run)); err == nil {
			t.Error("taken")
		}
	})
}

func TestInstallStaysInTheVolume(t *testing.T) {
	cache, key := &Cache{Dir: t.TempDir()}, keyAt(t, "launcher:1", false, 1000)
	first, hostile, outside := volume(t), volume(t), t.TempDir()
	put(t, first, cacheFile, description(1000, ""))
	if err := cache.Harvest(key, first, reader(first)); err != nil {
		t.Fatal(err)
	}
	if err := hostile.Symlink(outside, "cache"); err != nil {
		t.Fatal(err)
	}
	if _, err := cache.Install(key, hostile); err == nil {
		t.Error("followed a link out of the volume")
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("outside has %v, %v", left, err)
	}
}
