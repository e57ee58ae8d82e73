package pool

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// open makes a pool in a directory, without reflinks: what it does with files is the same.
func open(t *testing.T) *Pool {
	t.Helper()
	p, err := at(t.TempDir(), false, "")
	if err != nil {
		t.Fatal(err)
	}
	p.Now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }
	return p
}

func create(t *testing.T, p *Pool, v Volume) Volume {
	t.Helper()
	v, err := p.Create(t.Context(), v)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func write(t *testing.T, path, text string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(text), at); err != nil {
		t.Fatal(err)
	}
}

func has(t *testing.T, path, text string, at, size int64) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(data)) != size || !bytes.Equal(data[at:at+int64(len(text))], []byte(text)) {
		t.Errorf("%s: %d bytes, want %d with %q at %d", path, len(data), size, text, at)
	}
}

func TestVolumes(t *testing.T) {
	p := open(t)
	v := create(t, p, Volume{Name: "pvc-1", Size: 8 << 20})
	if v.ID != "pvc-1" || v.Family != "pvc-1" || v.Created.Year() != 2026 {
		t.Errorf("%+v", v)
	}
	write(t, p.Image("pvc-1"), "precious", 1<<20)
	if again := create(t, p, Volume{Name: "pvc-1", Size: 8 << 20}); again.ID != v.ID {
		t.Errorf("%+v", again)
	}
	has(t, p.Image("pvc-1"), "precious", 1<<20, 8<<20)
	if _, err := p.Create(t.Context(), Volume{Name: "pvc-1", Size: 9 << 20}); !errors.Is(err, ErrExists) {
		t.Errorf("another size: %v", err)
	}
	if _, err := p.Create(t.Context(), Volume{Name: "pvc-2", Size: 1 << 60}); !errors.Is(err, ErrFull) {
		t.Errorf("more than there is: %v", err)
	}
	if grown, err := p.Grow("pvc-1", 16<<20); err != nil || grown.Size != 16<<20 {
		t.Errorf("%+v, %v", grown, err)
	}
	has(t, p.Image("pvc-1"), "precious", 1<<20, 16<<20)
	if grown, err := p.Grow("pvc-1", 1<<20); err != nil || grown.Size != 16<<20 {
		t.Errorf("it shrinks: %+v, %v", grown, err)
	}
	all, err := p.Volumes()
	if err != nil || len(all) != 1 || p.Problem(all[0]) != "" {
		t.Errorf("%+v, %v", all, err)
	}
	if err := os.Truncate(p.Image("pvc-1"), 4096); err != nil {
		t.Fatal(err)
	}
	if problem := p.Problem(all[0]); !strings.Contains(problem, "4096 bytes of 16777216") {
		t.Errorf("of a short image: %q", problem)
	}
	for range 2 {
		if err := p.Remove("pvc-1"); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
	for _, id := range []string{"pvc-1", "..", "a/b", ""} {
		if _, err := p.Volume(id); !errors.Is(err, ErrNotFound) {
			t.Errorf("volume %q: %v", id, err)
		}
		if err := p.Remove(id); err != nil {
			t.Errorf("remove %q: %v", id, err)
		}
	}
}

func TestSnapshotsAndClones(t *testing.T) {
	p := open(t)
	create(t, p, Volume{Name: "a", Size: 1 << 20})
	write(t, p.Image("a"), "before", 4096)
	s, err := p.TakeSnapshot(t.Context(), "s", "a")
	if err != nil || s.Size != 1<<20 || s.Family != "a" {
		t.Fatalf("%+v, %v", s, err)
	}
	write(t, p.Image("a"), "after!", 4096)
	if again, err := p.TakeSnapshot(t.Context(), "s", "a"); err != nil || again != s {
		t.Errorf("%+v, %v", again, err)
	}
	create(t, p, Volume{Name: "other", Size: 1 << 20})
	if _, err := p.TakeSnapshot(t.Context(), "s", "other"); !errors.Is(err, ErrExists) {
		t.Errorf("the same name of another volume: %v", err)
	}
	restored := create(t, p, Volume{Name: "restored", Size: 2 << 20, Source: Source{Snapshot: "s"}})
	has(t, p.Image("restored"), "before", 4096, 2<<20)
	create(t, p, Volume{Name: "cloned", Size: 1 << 20, Source: Source{Volume: "a"}})
	has(t, p.Image("cloned"), "after!", 4096, 1<<20)
	if restored.Family != "a" {
		t.Errorf("%+v", restored)
	}
	for _, c := range []struct {
		v    Volume
		want error
	}{
		{Volume{Name: "small", Size: 4096, Source: Source{Volume: "a"}}, ErrExists},
		{Volume{Name: "formatted", Size: 1 << 20, FSType: "ext4", Source: Source{Snapshot: "s"}}, ErrExists},
		{Volume{Name: "orphan", Size: 1 << 20, Source: Source{Snapshot: "none"}}, ErrNotFound},
		{Volume{Name: "orphan", Size: 1 << 20, Source: Source{Volume: "none"}}, ErrNotFound},
	} {
		if _, err := p.Create(t.Context(), c.v); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v", c.v, err)
		}
	}
	// The volume goes, and what was made from it stays.
	if err := p.Remove("a"); err != nil {
		t.Fatal(err)
	}
	create(t, p, Volume{Name: "later", Size: 1 << 20, Source: Source{Snapshot: "s"}})
	has(t, p.Image("later"), "before", 4096, 1<<20)
	for range 2 {
		if err := p.RemoveSnapshot("s"); err != nil {
			t.Error(err)
		}
	}
	if all, err := p.Snapshots(); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}

// A removal is killed at each of its steps. Until it is no longer whole, whoever asks for the volume has it back.
func TestRemovalAfterKill(t *testing.T) {
	for _, c := range []struct {
		at    string
		whole bool
	}{{"aside", true}, {"partly", false}} {
		t.Run(c.at, func(t *testing.T) {
			p := open(t)
			create(t, p, Volume{Name: "v", Size: 1 << 20})
			write(t, p.Image("v"), "precious", 0)
			died := errors.New("killed")
			killed = func(at string) {
				if at == c.at {
					panic(died)
				}
			}
			func() {
				defer func() {
					if recover() != died { //nolint:errorlint // it is this one that was thrown
						t.Error("it was not killed")
					}
				}()
				t.Log(p.Remove("v"))
			}()
			killed = nil
			if entries, _, err := p.Entries(); err != nil || len(entries) != 1 || entries["v"] == 0 {
				t.Errorf("entries: %v, %v", entries, err)
			}
			if err := p.Clean(); err != nil {
				t.Fatal(err)
			}
			_, err := p.Volume("v")
			if c.whole {
				has(t, p.Image("v"), "precious", 0, 1<<20)
			} else if !errors.Is(err, ErrNotFound) {
				t.Errorf("what is not whole is back: %v", err)
			}
			if err := p.Remove("v"); err != nil {
				t.Error(err)
			}
			left, err := filepath.Glob(filepath.Join(p.Root, "*", "*"))
			if err != nil || len(left) != 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
}

// What was being made when the process was killed was never given to anyone.
func TestMakingAfterKill(t *testing.T) {
	p := open(t)
	dir, err := p.begin("v")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "image"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	v := create(t, p, Volume{Name: "v", Size: 4096})
	has(t, p.Image(v.ID), "\x00", 0, 4096)
	if _, err := p.begin("w"); err != nil {
		t.Fatal(err)
	}
	if err := p.Clean(); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(p.Root, making, "*")); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// A volume that a node uses is not erased; a node that has died does not use it, whatever has its namespace now.
func TestVolumeInUse(t *testing.T) {
	p := open(t)
	create(t, p, Volume{Name: "v", Size: 4096})
	alive, err := identify("/proc/self")
	if err != nil {
		t.Fatal(err)
	}
	// The namespace of a node that has died, or of one before a reboot, may be another's since.
	dead, before := alive, alive
	dead.Start = 0
	before.Boot = "another"
	records := []attachment{{"node1", alive}, {"node2", dead}, {"node3", before}}
	if err := writeRecord(p.nodesFile("v"), records); err != nil {
		t.Fatal(err)
	}
	if err := p.Remove("v"); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "[node1]") {
		t.Errorf("%v", err)
	}
	if _, err := p.TakeSnapshot(t.Context(), "s", "v"); !errors.Is(err, ErrInUse) {
		t.Errorf("a copy of what is being written: %v", err)
	}
	if err := p.Detach("v", "node1"); err != nil {
		t.Fatal(err)
	}
	if err := p.Remove("v"); err != nil {
		t.Error(err)
	}
}

func TestRoom(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		name     string
		holdings []holding
		want     int64
	}{
		{"nothing", nil, 0},
		{"empty and full volumes", []holding{{"a", 10 * gib, 0}, {"b", 10 * gib, 10 * gib}}, 10 * gib},
		{
			"a snapshot shares all with its volume",
			[]holding{{"a", 10 * gib, 4 * gib}, {"a", 4 * gib, 4 * gib}},
			10 * gib,
		},
		{"a clone, too", []holding{{"a", 10 * gib, 10 * gib}, {"a", 10 * gib, 10 * gib}}, 10 * gib},
		{"more blocks than size", []holding{{"a", gib, 2 * gib}}, 0},
	} {
		if got := outstanding(c.holdings); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	if got := room(100*gib, 64*gib); got != 35*gib-spare {
		t.Errorf("room: %d", got)
	}
	if got := room(gib, 2*gib); got != 0 {
		t.Errorf("no room: %d", got)
	}
}

// Nobody else has the room for what is being made, and no one waits for its being made.
func TestReserve(t *testing.T) {
	p := open(t)
	available, err := p.Available()
	if err != nil {
		t.Fatal(err)
	}
	half, failure := available/2+available/8, errors.New("no")
	err = p.reserve(half, func() error {
		if err := p.reserve(half, func() error { return nil }); !errors.Is(err, ErrFull) {
			t.Errorf("beside one that takes more than half of it: %v", err)
		}
		return p.reserve(available/8, func() error { return failure })
	})
	if !errors.Is(err, failure) {
		t.Errorf("the error of making it: %v", err)
	}
	if err := p.reserve(half, func() error { return unix.ENOSPC }); !errors.Is(err, ErrFull) {
		t.Errorf("a disk that is full: %v", err)
	}
	if err := p.reserve(half, func() error {
		return run("sh", "-c", "echo 'mkfs: No space left on device while writing' >&2; exit 1")
	}); !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "while writing") {
		t.Errorf("a program that found the disk full: %v", err)
	}
	if err := p.reserve(half, func() error { return run("false") }); err == nil || errors.Is(err, ErrFull) {
		t.Errorf("a program that failed: %v", err)
	}
	if p.pending != 0 {
		t.Errorf("%d bytes stay promised to nobody", p.pending)
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"pvc-7": "pvc-7", "A.b_c-1": "A.b_c-1", ".hidden": "name-", "a/b": "name-", "": "name-",
		strings.Repeat("x", 100): strings.Repeat("x", 100), strings.Repeat("x", 101): "name-",
	} {
		got := ID(name)
		if !strings.HasPrefix(got, want) || !plainName.MatchString(got) {
			t.Errorf("%q: %q", name, got)
		}
	}
	for _, c := range []struct {
		bytes  int64
		fsType string
		want   int64
	}{{1, "", 4096}, {4097, "", 8192}, {1, "ext4", 1 << 20}, {1, "xfs", 300 << 20}, {1 << 30, "xfs", 1 << 30}} {
		if got := RoundUp(c.bytes, c.fsType); got != c.want {
			t.Errorf("%d, %q: %d, want %d", c.bytes, c.fsType, got, c.want)
		}
	}
}

func TestMountFlags(t *testing.T) {
	flags, data := mountFlags([]string{"ro", "noatime", "", "defaults", "nouuid"})
	if flags != 1|1024 || strings.Join(data, ",") != "nouuid" {
		t.Errorf("%d, %v", flags, data)
	}
}
