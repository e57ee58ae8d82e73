package launcher

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"
)

func TestAwaitSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "virtiofsd.sock")
	tick := make(chan time.Time)
	done := make(chan error)
	go func() { done <- awaitSocket(t.Context(), path, tick) }()
	tick <- time.Time{}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case tick <- time.Time{}:
	case err := <-done: // it looked between
		done = make(chan error, 1)
		done <- err
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAwaitFilesystems(t *testing.T) {
	spec := &v1.VirtualMachineInstanceSpec{}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := awaitFilesystems(ended, spec); err != nil {
		t.Errorf("nothing to wait for: %v", err)
	}
	spec.Domain.Devices.Filesystems = []v1.Filesystem{{Name: "data", Virtiofs: &v1.FilesystemVirtiofs{}}}
	err := awaitFilesystems(ended, spec)
	if err == nil || !strings.Contains(err.Error(), `filesystem "data": virtiofsd does not serve it`) ||
		!strings.Contains(err.Error(), "container virtiofs-data") {
		t.Errorf("never there: %v", err)
	}
}
