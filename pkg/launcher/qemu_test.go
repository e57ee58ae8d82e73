package launcher

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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
	for range 500 {
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
