package pool

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// memory makes a directory in memory where there is such, for a disk takes its time to sync.
func memory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "virt-local-csi-*") //nolint:usetesting // not on a disk
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// FuzzID gives the pool identifiers that callers have made up: none leads out of it, none finds what is not there, and
// what is made under a name is found by its ID and gone when it is removed.
func FuzzID(f *testing.F) {
	for _, id := range []string{
		"pvc-1", "..", "../../etc", "a/b", "", ".", "-x", "a~", "snapshots.x", strings.Repeat("x", 300), "a\x00b", "ä",
	} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		outer := memory(t)
		p, err := at(filepath.Join(outer, "pool"), false, "")
		if err != nil {
			t.Fatal(err)
		}
		precious := filepath.Join(outer, "volume.json")
		if err := os.WriteFile(precious, []byte(`{"id": "outer"}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if v, err := p.Volume(id); err == nil {
			t.Errorf("volume %q is there: %+v", id, v)
		}
		if s, err := p.Snapshot(id); err == nil {
			t.Errorf("snapshot %q is there: %+v", id, s)
		}
		if err := p.Remove(id); err != nil {
			t.Errorf("remove volume %q: %v", id, err)
		}
		if err := p.RemoveSnapshot(id); err != nil {
			t.Errorf("remove snapshot %q: %v", id, err)
		}
		if id != "" {
			v, err := p.Create(t.Context(), Volume{Name: id, Size: pageSize})
			if err != nil {
				t.Fatalf("make volume %q: %v", id, err)
			}
			if !plainName.MatchString(v.ID) ||
				filepath.Dir(p.path(volumes, v.ID)) != filepath.Join(p.Root, volumes.dir) {
				t.Errorf("volume %q has ID %q", id, v.ID)
			}
			if found, err := p.Volume(v.ID); err != nil || found.Name != v.Name {
				t.Errorf("volume %q: %+v, %v", id, found, err)
			}
			if err := p.Remove(v.ID); err != nil {
				t.Errorf("remove volume %q: %v", v.ID, err)
			}
		}
		if left, err := filepath.Glob(filepath.Join(p.Root, "*", "*")); err != nil || len(left) != 0 {
			t.Errorf("after %q there are %v, %v", id, left, err)
		}
		if text, err := os.ReadFile(precious); err != nil || string(text) != `{"id": "outer"}` {
			t.Errorf("after %q what is beside the pool is %q, %v", id, text, err)
		}
	})
}

// FuzzRecord has the records of a volume, of its nodes and of a snapshot be anything, as a disk that was full or was
// written by another version may have left them. The pool answers or refuses, what it answers is in bounds, and it
// erases what it cannot read no more than it hands it out.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"id":"v","name":"v","size":4096,"fsType":"xfs","family":"v","source":{"snapshot":"s"}}`),
		[]byte(`[{"node":"node1","init":{"boot":"b","namespace":1,"start":2}}]`))
	f.Add([]byte(`{"size":-1}`), []byte(`null`))
	f.Add([]byte(`{"id":"../../etc","size":9223372036854775807}`), []byte(`{}`))
	f.Add([]byte(``), []byte(`[`))
	f.Fuzz(func(t *testing.T, record, nodes []byte) {
		p, err := at(memory(t), false, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{p.path(volumes, "v"), p.path(snapshots, "s")} {
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "image"), []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		files := map[string][]byte{
			filepath.Join(p.path(volumes, "v"), volumes.record):     record,
			filepath.Join(p.path(snapshots, "s"), snapshots.record): record,
			p.nodesFile("v"): nodes,
		}
		for file, text := range files {
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		v, err := p.Volume("v")
		if err == nil && (v.ID != "v" || v.Size <= 0 || v.Formatted < 0) {
			t.Errorf("a volume that cannot be: %+v", v)
		}
		if s, err := p.Snapshot("s"); err == nil && (s.ID != "s" || s.Size <= 0 || s.Formatted < 0) {
			t.Errorf("a snapshot that cannot be: %+v", s)
		}
		if room, err := p.Available(); err == nil && room < 0 {
			t.Errorf("there are %d bytes", room)
		}
		all, err := p.attachments("v")
		if err == nil {
			if _, err := p.attachedNodes("v"); err != nil {
				t.Errorf("attachments %+v: %v", all, err)
			}
		}
		if _, _, err := p.Entries(); err != nil {
			t.Errorf("entries: %v", err)
		}
		if err := p.Clean(); err != nil {
			t.Error(err)
		}
		for file, text := range files {
			if now, err := os.ReadFile(file); err != nil || !bytes.Equal(now, text) {
				t.Errorf("%s became %q, %v", file, now, err)
			}
		}
		if image, err := os.ReadFile(p.Image("v")); err != nil || string(image) != "precious" {
			t.Errorf("the image became %q, %v", image, err)
		}
	})
}

// FuzzStat reads lines of /proc, whose second field a process chooses.
func FuzzStat(f *testing.F) {
	f.Add([]byte("7 (a) Z (b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 99 5"))
	f.Add([]byte("7 (a"))
	f.Add([]byte(")"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if state, _, err := parseStat(line); err == nil && state == "" {
			t.Errorf("%q has no state", line)
		}
	})
}
