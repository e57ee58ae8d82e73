package images

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
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

// awaitHandlers waits until the process has set what it does on its signals: SIGCHLD ignored, the others caught.
func awaitHandlers(t *testing.T, pid int) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte("SigIgn:\t0000000000010000")) && bytes.Contains(b, []byte("SigCgt:\t0000000000004002")) {
			return
		}
	}
	t.Fatal("it has not set its signal handlers")
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
