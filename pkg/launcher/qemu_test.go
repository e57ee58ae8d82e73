package launcher

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestFindQEMU(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }() // again, when a check has failed
	file := filepath.Join(t.TempDir(), "pid")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(strconv.Itoa(cmd.Process.Pid))
	found, err := findQEMU(file, "/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	if err := found.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := findQEMU(file, "/usr/bin/qemu-system-x86_64"); !errors.Is(err, errQEMUEnded) {
		t.Errorf("another program's process is found: %v", err)
	}
	for _, text := range []string{"", "x", "1", "-5", "999999999"} {
		write(text)
		if _, err := findQEMU(file, "/bin/sleep"); err == nil || errors.Is(err, errQEMUEnded) != (text == "999999999") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := findQEMU(file+"-none", "/bin/sleep"); err == nil || errors.Is(err, errQEMUEnded) {
		t.Errorf("without the file it is not known: %v", err)
	}
	write(strconv.Itoa(cmd.Process.Pid))
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// It is there until somebody waits for it, which here nobody does yet.
	var dead error
	for range 6000 {
		if _, dead = findQEMU(file, "/bin/sleep"); dead != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !errors.Is(dead, errQEMUEnded) {
		t.Errorf("one that was killed, and is not waited for: %v", dead)
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("it was not killed")
	}
	if _, err := findQEMU(file, "/bin/sleep"); !errors.Is(err, errQEMUEnded) {
		t.Errorf("one that was killed: %v", err)
	}
}

// A process that was killed has ended for us before the kernel has ended it, which takes long on a busy machine.
func TestDyingQEMU(t *testing.T) {
	const line = "17 (a) (b) %s 1 17 17 0 -1 %d 80 0 0 0 0 0 0 0 20 0 7 0 317163 430080 40 18446744073709551615 " +
		"1 2 3 0 0 %d 0 4096 6 0 0 0 17 0 0 0 0 0 0 4 5 6 7 8 9 10 0\n"
	for _, c := range []struct {
		state          string
		flags, pending int
		dies           bool
	}{
		{"S", 0x400000, 0, false},
		{"T", 0x400000, 1<<18 | 1<<1, false}, // SIGSTOP and SIGINT
		{"Z", 0x400000, 0, true},
		{"X", 0x400000, 0, true},
		{"R", 0x400004, 0, true},      // exiting
		{"T", 0x400000, 1 << 8, true}, // SIGKILL
	} {
		text := fmt.Sprintf(line, c.state, c.flags, c.pending)
		got, err := parseStat(text)
		if err != nil || got.name != "a) (b" || got.dies() != c.dies {
			t.Errorf("%s is %+v, %v; dies %v", text, got, err, c.dies)
		}
	}
	for _, text := range []string{"", "17 (a", ")(", "17 (a) S 1 2", "17 (a) S" + strings.Repeat(" x", 40)} {
		if got, err := parseStat(text); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
}
