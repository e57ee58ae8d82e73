package launcher

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

func TestFindQEMU(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
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
	if _, err := findQEMU(file, "/usr/bin/qemu-system-x86_64"); err == nil {
		t.Error("another program's process is found")
	}
	for _, text := range []string{"", "x", "1", "-5", "999999999"} {
		write(text)
		if _, err := findQEMU(file, "/bin/sleep"); err == nil {
			t.Errorf("%q is found", text)
		}
	}
}
