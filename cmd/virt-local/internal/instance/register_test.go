package instance

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func newInstance(t *testing.T, name string) *Instance {
	t.Helper()
	return &Instance{Name: name, StateDir: t.TempDir(), Nodes: 2}
}

func claim(t *testing.T, dir string, in *Instance, fresh bool) error {
	t.Helper()
	r, err := OpenRegister(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	return r.Claim(in, fresh, nil)
}

func TestRegister(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "register")
	a, b := newInstance(t, "a"), newInstance(t, "b")
	for _, in := range []*Instance{a, b} {
		if err := claim(t, dir, in, true); err != nil {
			t.Fatal(err)
		}
	}
	if a.Slot == b.Slot {
		t.Fatalf("both have slot %d", a.Slot)
	}
	loaded, err := Load(a.StateDir)
	if err != nil || loaded.Slot != a.Slot || loaded.Name != "a" {
		t.Fatalf("loaded %+v, %v", loaded, err)
	}
	if err := claim(t, dir, a, false); err != nil {
		t.Fatalf("claim again: %v", err)
	}

	// After a reboot the register is empty, and a third instance must not have got a's slot meanwhile.
	thief := newInstance(t, "thief")
	thief.Slot = a.Slot
	if err := claim(t, dir, thief, false); err == nil {
		t.Fatal("a slot was claimed twice")
	}

	r, err := OpenRegister(dir)
	if err != nil {
		t.Fatal(err)
	}
	if last, err := r.Release(a); err != nil || last {
		t.Fatalf("release a: last=%v, %v", last, err)
	}
	// b's state directory was removed by hand: it holds nothing any more.
	if err := os.Remove(b.Path("instance.json")); err != nil {
		t.Fatal(err)
	}
	if last, err := r.Release(b); err != nil || !last {
		t.Fatalf("release b: last=%v, %v", last, err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the empty register is left: %v", err)
	}
}

func TestRegisterIsExclusive(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "register")
	first, err := OpenRegister(dir)
	if err != nil {
		t.Fatal(err)
	}
	opened := make(chan *Register)
	go func() {
		r, err := OpenRegister(dir)
		if err != nil {
			t.Error(err)
		}
		opened <- r
	}()
	select {
	case <-opened:
		t.Fatal("opened twice")
	default:
	}
	if err := first.Close(); err != nil { // removes the directory under the second one's hands
		t.Fatal(err)
	}
	second := <-opened
	if _, err := second.Slots(); err != nil {
		t.Fatalf("the second has no directory: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestWriteFileKeepsEqualContent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d", "f")
	if err := WriteFile(path, []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("equal content was written again (%v)", err)
	}
	if err := WriteFile(path, []byte("b"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "b" {
		t.Errorf("got %q, %v", b, err)
	}
}

// A setting of a link that has gone is not there to be put back; those of others are.
func TestRestoreSysctls(t *testing.T) {
	r, err := OpenRegister(filepath.Join(t.TempDir(), "register"))
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(r.sysctlFile(), []byte(`{"net/ipv6/conf/gone/accept_ra": 1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.RestoreSysctls(); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(r.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the register is left: %v", err)
	}
}
