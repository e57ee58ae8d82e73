package podfs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// Every process of the pod is killed, and no other.
func TestKill(t *testing.T) {
	pod := types.UID("11111111-2222-3333-4444-555555555555")
	proc := t.TempDir()
	start := func(cgroup string) *exec.Cmd {
		t.Helper()
		cmd := exec.Command("sleep", "600")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		dir := filepath.Join(proc, strconv.Itoa(cmd.Process.Pid))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{
			"cgroup": cgroup,
			"stat":   strconv.Itoa(cmd.Process.Pid) + " (sleep) S 1",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return cmd
	}
	ours := start("0::/kubepods/burstable/pod" + string(pod) + "/x\n")
	too := start("0::/kubepods.slice/kubepods-pod" + strings.ReplaceAll(string(pod), "-", "_") + ".slice/x.scope\n")
	other := start("0::/kubepods/pod99999999-2222-3333-4444-555555555555/x\n")
	if runs, err := Running(proc, pod); err != nil || !runs {
		t.Errorf("it runs: %v, %v", runs, err)
	}
	if runs, err := Running(proc, "22222222-2222-3333-4444-555555555555"); err != nil || runs {
		t.Errorf("a pod without processes runs: %v, %v", runs, err)
	}
	if n, err := Kill(proc, pod); err != nil || n != 2 {
		t.Errorf("killed %d, %v", n, err)
	}
	for _, cmd := range []*exec.Cmd{ours, too} {
		if err := cmd.Wait(); err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Errorf("it ended with %v", err)
		}
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("a process of another pod: %v", err)
	}
}

func TestLaunchers(t *testing.T) {
	dir := t.TempDir()
	for _, pod := range []types.UID{"a", "b"} {
		if err := os.MkdirAll(RunPath(dir, pod), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(RunPath(dir, "b"), "launcher.sock"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := Launchers(dir); err != nil || len(got) != 1 || got[0] != "b" {
		t.Errorf("%v, %v", got, err)
	}
}

// One pod that cannot be looked at does not hide the others.
func TestLaunchersBesideAnOddOne(t *testing.T) {
	dir := t.TempDir()
	for _, pod := range []types.UID{"b", "c"} {
		if err := os.MkdirAll(RunPath(dir, pod), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(RunPath(dir, pod), "launcher.sock"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(RunPath(dir, "b")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("run", RunPath(dir, "b")); err != nil { // ELOOP
		t.Fatal(err)
	}
	if got, err := Launchers(dir); err == nil || !strings.Contains(err.Error(), "pod b") || len(got) != 1 ||
		got[0] != "c" {
		t.Errorf("%v, %v", got, err)
	}
}

// SIGTERM reaches the process, and not one that has its number later.
func TestTerminate(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := openProcess("/proc", cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Terminate(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %v", err)
	}
	if err := p.Terminate(); err == nil {
		t.Error("a process that has ended was ended again")
	}
}
