package process

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	st, err := parseStat("42 (a) b (c) S 7 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 123456 1000 " +
		"100 18446744073709551615\n")
	if err != nil || st != (Stat{Parent: 7, State: 'S', Start: 123456}) {
		t.Errorf("got %+v, %v", st, err)
	}
	for _, bad := range []string{
		"", "42", "42 (x) S 1", "42 (x) S y 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20",
	} {
		if _, err := parseStat(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// start starts a process that ignores SIGTERM if stubborn.
func start(t *testing.T, stubborn bool) *exec.Cmd {
	t.Helper()
	script := "echo ready; exec sleep 1000"
	if stubborn {
		script = "trap '' TERM; echo ready; while :; do sleep 1000; done"
	}
	cmd := exec.Command("sh", "-c", script)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestEnd(t *testing.T) {
	for _, stubborn := range []bool{false, true} {
		cmd := start(t, stubborn)
		id, err := Identify(cmd.Process.Pid)
		if err != nil || !id.Alive() {
			t.Fatalf("alive: %v, %v", id.Alive(), err)
		}
		if err := id.End(context.Background(), 50*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if id.Alive() { // it is a zombie, which nobody has waited for yet
			t.Error("it is alive after End")
		}
		if err := id.End(context.Background(), time.Second); err != nil {
			t.Errorf("end again: %v", err)
		}
	}
}

func TestRecycledPIDIsSafe(t *testing.T) {
	cmd := start(t, false)
	now, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string]ID{
		"other start": {PID: now.PID, Start: now.Start - 1, Boot: now.Boot},
		"other boot":  {PID: now.PID, Start: now.Start, Boot: "00000000-0000-0000-0000-000000000000"},
		"none":        {},
	} {
		if other.Alive() {
			t.Errorf("%s: alive", name)
		}
		if err := other.End(context.Background(), 0); err != nil && other.PID != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !now.Alive() {
		t.Error("somebody else's process was killed")
	}
}

func TestPIDFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "x.pid")
	if id, err := ReadFile(path); err != nil || id.Alive() {
		t.Errorf("no file: %+v, %v", id, err)
	}
	self, err := Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := self.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	if id, err := ReadFile(path); err != nil || id != self {
		t.Errorf("got %+v, %v", id, err)
	}
	if err := os.WriteFile(path, []byte(`{"pid":`), 0o644); err != nil {
		t.Fatal(err)
	}
	if id, err := ReadFile(path); err != nil || id.Alive() {
		t.Errorf("torn file: %+v, %v", id, err)
	}
}

func TestFindAndChildren(t *testing.T) {
	cmd := start(t, false)
	found, err := Find("1000")
	if err != nil {
		t.Fatal(err)
	}
	// The shell has become sleep by exec; wait for its command line to say so.
	deadline := time.Now().Add(time.Minute)
	for !slices.ContainsFunc(found, func(id ID) bool { return id.PID == cmd.Process.Pid }) {
		if time.Now().After(deadline) {
			t.Fatalf("found %v, not %d", found, cmd.Process.Pid)
		}
		if found, err = Find("1000"); err != nil {
			t.Fatal(err)
		}
	}
	if none, err := Find("100"); err != nil ||
		slices.ContainsFunc(none, func(id ID) bool { return id.PID == cmd.Process.Pid }) {
		t.Errorf("an argument's beginning was enough: %v, %v", none, err)
	}
	children, err := Children(os.Getpid())
	if err != nil || !slices.Equal(children[cmd.Process.Pid], []string{"sleep", "1000"}) {
		t.Errorf("children %v, %v", children, err)
	}
}
