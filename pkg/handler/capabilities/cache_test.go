package capabilities

import (
	"fmt"
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

func keyAt(t *testing.T, seconds int64) Key {
	t.Helper()
	key, err := NewKey(Variant{}, statAt(seconds))
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

func description(ctime int64, more string) string {
	return fmt.Sprintf("<qemuCaps>\n<qemuctime>%d</qemuctime>%s</qemuCaps>", ctime, more)
}

func TestStoreAndInstall(t *testing.T) {
	cache := &Cache{Dir: t.TempDir()}
	key := keyAt(t, 1000)
	if there, err := cache.Install(key, volume(t)); there || err != nil {
		t.Fatalf("an empty cache installed: %v, %v", there, err)
	}
	if has, err := cache.Has(key); has || err != nil {
		t.Fatalf("an empty cache has it: %v, %v", has, err)
	}
	for _, content := range []string{description(1000, "<flag name='a'/>"), description(1000, "<flag name='b'/>")} {
		if err := cache.Store(key, map[string][]byte{cacheFile: []byte(content)}); err != nil {
			t.Fatal(err)
		}
		if has, err := cache.Has(key); !has || err != nil {
			t.Fatalf("not stored: %v, %v", has, err)
		}
		run := volume(t)
		for range 2 { // a launcher that has its copy keeps it
			if there, err := cache.Install(key, run); !there || err != nil {
				t.Fatalf("installed: %v, %v", there, err)
			}
		}
		got, err := run.ReadFile(filepath.Join(names.CapabilityCacheDir, cacheFile))
		if err != nil || string(got) != content {
			t.Errorf("the launcher got %q, %v; want %q", got, err, content)
		}
		info, err := run.Stat(filepath.Join(names.CapabilityCacheDir, cacheFile))
		if err != nil {
			t.Fatal(err)
		}
		var stat unix.Stat_t
		if err := unix.Stat(filepath.Join(run.Name(), names.CapabilityCacheDir), &stat); err != nil {
			t.Fatal(err)
		}
		if stat.Uid != names.User || info.Mode().Perm() != 0o600 {
			t.Errorf("owner %d, mode %v", stat.Uid, info.Mode())
		}
	}
}

func TestEachBootStartsAnew(t *testing.T) {
	dir, key := t.TempDir(), keyAt(t, 1000)
	for _, boot := range []string{"first", "second"} {
		cache := &Cache{Dir: dir, Boot: boot}
		if there, err := cache.Install(key, volume(t)); there || err != nil {
			t.Fatalf("%s: installed: %v, %v", boot, there, err)
		}
		if err := cache.Store(key, map[string][]byte{cacheFile: []byte(description(1000, ""))}); err != nil {
			t.Fatal(err)
		}
		left, err := os.ReadDir(dir)
		if err != nil || len(left) != 1 || left[0].Name() != boot {
			t.Errorf("%s: the node keeps %v, %v", boot, left, err)
		}
	}
}

func TestKeysDiffer(t *testing.T) {
	seen := map[string]string{}
	for name, test := range map[string]struct {
		variant Variant
		ctime   int64
	}{
		"base": {Variant{}, 1}, "kvm": {Variant{KVM: true}, 1},
		"sev": {Variant{KVM: true, SEV: true}, 1}, "ctime": {Variant{}, 2},
	} {
		key, err := NewKey(test.variant, statAt(test.ctime))
		if err != nil {
			t.Fatal(err)
		}
		if other, twice := seen[key.hash]; twice {
			t.Errorf("%s and %s have the same key", name, other)
		}
		seen[key.hash] = name
	}
	missing := func(string) (unix.Stat_t, error) { return unix.Stat_t{}, fs.ErrNotExist }
	if _, err := NewKey(Variant{}, missing); err == nil {
		t.Error("an image without QEMU has a key")
	}
}

func TestStoreRefuses(t *testing.T) {
	key := keyAt(t, 1000)
	refused := func(t *testing.T, files map[string][]byte) {
		t.Helper()
		cache := &Cache{Dir: t.TempDir()}
		if err := cache.Store(key, files); err == nil {
			t.Error("stored")
		}
		if there, _ := cache.Install(key, volume(t)); there {
			t.Error("installed")
		}
	}
	for name, content := range map[string]string{
		"another QEMU":    description(999, ""),
		"no time":         "<qemuCaps/>",
		"another root":    "<domain><qemuctime>1000</qemuctime></domain>",
		"broken":          "<qemuCaps><qemuctime>1000</qemuctime>",
		"document type":   "<!DOCTYPE x [<!ENTITY a 'b'>]>" + description(1000, ""),
		"nested time":     "<qemuCaps><a><qemuctime>1000</qemuctime></a></qemuCaps>",
		"not text at all": "\x00\x01",
		"too large":       description(1000, strings.Repeat(" ", maxBytes)),
	} {
		t.Run(name, func(t *testing.T) { refused(t, map[string][]byte{cacheFile: []byte(content)}) })
	}
	t.Run("nothing", func(t *testing.T) { refused(t, nil) })
	t.Run("a path", func(t *testing.T) {
		refused(t, map[string][]byte{"../" + cacheFile: []byte(description(1000, ""))})
	})
	t.Run("too many files", func(t *testing.T) {
		files := map[string][]byte{}
		for i := range maxFiles + 1 {
			files[strings.Repeat(fmt.Sprint(i), 40)+".xml"] = []byte(description(1000, ""))
		}
		refused(t, files)
	})
}

func TestInstallStaysInTheVolume(t *testing.T) {
	cache, key := &Cache{Dir: t.TempDir()}, keyAt(t, 1000)
	hostile, outside := volume(t), t.TempDir()
	if err := cache.Store(key, map[string][]byte{cacheFile: []byte(description(1000, ""))}); err != nil {
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
