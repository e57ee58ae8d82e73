package images

import (
	"archive/tar"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestPauseRuns runs the program that is written down as machine code.
func TestPauseRuns(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the pause image is for amd64")
	}
	path := filepath.Join(t.TempDir(), "pause")
	if err := os.WriteFile(path, pauseBinary(), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		cmd := exec.Command(path)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		awaitHandlers(t, cmd.Process.Pid)
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			// Exit code 0 tells its own handler from the default action.
			if err != nil {
				t.Errorf("%v: %v", sig, err)
			}
		case <-time.After(time.Minute):
			cmd.Process.Kill()
			t.Fatalf("it does not end on %v", sig)
		}
	}
}

// awaitHandlers waits until the process has set what it does on its signals: SIGCHLD ignored, SIGINT and SIGTERM
// caught. It may ignore others besides, which whoever runs the tests ignores: SIGHUP under nohup.
func awaitHandlers(t *testing.T, pid int) {
	t.Helper()
	const ignored, caught = 1 << (syscall.SIGCHLD - 1), 1<<(syscall.SIGINT-1) | 1<<(syscall.SIGTERM-1)
	last := ""
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
		if err != nil {
			t.Fatal(err)
		}
		last = string(b)
		if mask(t, last, "SigIgn")&ignored == ignored && mask(t, last, "SigCgt") == caught {
			return
		}
	}
	t.Fatalf("it has not set its signal handlers:\n%s", last)
}

// mask reads a set of signals in a process's status.
func mask(t *testing.T, status, name string) uint64 {
	t.Helper()
	_, rest, _ := strings.Cut(status, name+":\t")
	text, _, _ := strings.Cut(rest, "\n")
	set, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		t.Fatalf("%s in\n%s: %v", name, status, err)
	}
	return set
}

func TestPauseArchive(t *testing.T) {
	a, err := Pause("virt-local/pause:1")
	if err != nil {
		t.Fatal(err)
	}
	again, err := Pause("virt-local/pause:1")
	if err != nil || a.Digest != again.Digest {
		t.Fatalf("not reproducible: %s, %s, %v", a.Digest, again.Digest, err)
	}
	r, err := a.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var names []string
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
	if len(names) != 3 || names[0] != "manifest.json" {
		t.Errorf("archive has %v", names)
	}
}

func TestOCIName(t *testing.T) {
	for ref, want := range map[string]string{"ghcr.io/a/b:dev": "ghcr.io/a/b:dev", "latest": "", "": ""} {
		if got := ociName(ref); got != want {
			t.Errorf("%q gives %q, want %q", ref, got, want)
		}
	}
}
