package launcher

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/disk"
	"github.com/virtkit/virtkit/pkg/vm/domain"
)

// The images that a guest has arrive as they are, and nothing else does.
func TestSendImages(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"seed.iso":    strings.Repeat("what it was", 10000),
		"answers.iso": "",
		"root.qcow2":  "not this",
	} {
		if err := os.WriteFile(filepath.Join(from, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(to, "seed.iso"), []byte("what it would be now"), 0o600); err != nil {
		t.Fatal(err)
	}
	a, b := net.Pipe()
	taken := make(chan error, 1)
	go func() {
		err := takeImages(b, to, []string{"answers", "seed"})
		taken <- err
		_, _ = io.WriteString(b, "ok\n")
	}()
	if err := sendImages(t.Context(), a, from); err != nil {
		t.Fatal(err)
	}
	if err := <-taken; err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(to)
	if err != nil || len(entries) != 2 {
		t.Fatalf("%v, %v", entries, err)
	}
	got, err := os.ReadFile(filepath.Join(to, "seed.iso"))
	if err != nil || len(got) != 110000 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestImagesRefused(t *testing.T) {
	for name, test := range map[string]struct{ sent, want string }{
		"nothing":     {"", "EOF"},
		"one missing": {"{}\n", "[seed] did not come"},
		"a stranger":  {`{"volume":"../root","size":1}` + "\nx{}\n", "not expected"},
		"twice": {
			`{"volume":"seed","size":1}` + "\nx" + `{"volume":"seed","size":1}` + "\nx{}\n", "not expected",
		},
		"huge":         {`{"volume":"seed","size":99999999999}` + "\n", "not expected"},
		"negative":     {`{"volume":"seed","size":-1}` + "\n", "not expected"},
		"cut off":      {`{"volume":"seed","size":9}` + "\nx", "unexpected EOF"},
		"endless line": {strings.Repeat("x", 1<<20), "more than"},
		"no JSON":      {"hello\n", "read what comes"},
	} {
		t.Run(name, func(t *testing.T) {
			err := takeImages(bytes.NewBufferString(test.sent), t.TempDir(), []string{"seed"})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
	a, b := net.Pipe()
	var other sync.WaitGroup
	defer other.Wait()
	defer b.Close()
	other.Go(func() { _, _ = io.Copy(io.Discard, b) })
	other.Go(func() { _, _ = io.WriteString(b, "there is no room\n") })
	if err := sendImages(t.Context(), a, t.TempDir()); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("refused: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c, d := net.Pipe()
	defer d.Close()
	if err := sendImages(ctx, c, t.TempDir()); err == nil {
		t.Error("cancelled, and no error")
	}
}

func TestSameImages(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Spec.Volumes = []v1.Volume{
		{
			Name:         "root",
			VolumeSource: v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{Image: "registry.example/os:latest"}},
		},
	}
	vmi.Status.VolumeStatus = []v1.VolumeStatus{{Name: "root", ContainerDiskVolume: &v1.ContainerDiskInfo{Checksum: 7}}}
	images := func(sum uint32) map[string]domain.Source {
		return map[string]domain.Source{"root": {Format: disk.FormatQcow2, Backing: &domain.Source{Checksum: sum}}}
	}
	if err := sameImages(vmi, images(7)); err != nil {
		t.Error(err)
	}
	if err := sameImages(vmi, images(8)); err == nil ||
		!strings.Contains(err.Error(), "registry.example/os:latest is another image") {
		t.Errorf("another image: %v", err)
	}
	vmi.Status.VolumeStatus[0].ContainerDiskVolume = nil // of a guest whose launcher did not say
	if err := sameImages(vmi, images(8)); err != nil {
		t.Error(err)
	}
}
