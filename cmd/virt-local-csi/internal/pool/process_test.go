package pool

import (
	"errors"
	"fmt"
	"os/exec"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	line := "7 (a) Z (b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 99 5"
	if state, start, err := parseStat([]byte(line)); err != nil || state != "S" || start != 4711 {
		t.Errorf("%q, %d, %v", state, start, err)
	}
	for _, line := range []string{"", "7 (a) S 1", "7 (a) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 x 99 5"} {
		if _, _, err := parseStat([]byte(line)); err == nil {
			t.Errorf("%q is taken", line)
		}
	}
}

// A process lives until it has ended. One that began in the same clock tick as another, as the test itself, is taken
// for alive for as long as that: the next that is begun is another.
func TestLiving(t *testing.T) {
	for range 50 {
		child := begunAndEnded(t)
		alive, err := living([]process{child})
		if err != nil {
			t.Fatal(err)
		}
		if !alive[child] {
			return
		}
		time.Sleep(3 * time.Millisecond)
	}
	t.Error("no process has ended")
}

// begunAndEnded returns a process that lived, and was seen, and has ended.
func begunAndEnded(t *testing.T) process {
	t.Helper()
	c := exec.Command("cat")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	dir := fmt.Sprintf("/proc/%d", c.Process.Pid)
	child, err := identify(dir)
	if err != nil {
		t.Fatal(err)
	}
	if alive, err := living([]process{child}); err != nil || !alive[child] {
		t.Errorf("%v, %v", alive, err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err == nil { // its end
		t.Fatal("it says something")
	}
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := identify(dir); !errors.Is(err, errEnded) {
		t.Errorf("%v", err)
	}
	return child
}

// The first process lives, whether or not the caller may trace it; that of another boot does not.
func TestOwnInit(t *testing.T) {
	init, err := ownInit()
	if err != nil {
		t.Fatal(err)
	}
	before := init
	before.Boot = "another"
	alive, err := living([]process{init, before})
	if err != nil || !alive[init] || alive[before] {
		t.Errorf("%v, %v", alive, err)
	}
	if self, err := identify("/proc/self"); err != nil || self == init || self.Namespace != init.Namespace {
		t.Errorf("%+v is %+v, %v", self, init, err)
	}
}
