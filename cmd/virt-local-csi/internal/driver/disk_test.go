//go:build integration

package driver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/virtkit/virtkit/cmd/virt-local-csi/internal/pool"
	"github.com/virtkit/virtkit/pkg/service/files/loop"
)

// disk mounts a small disk of its own until the test ends.
func disk(t *testing.T, fsType string) (dir string) {
	t.Helper()
	needRoot(t)
	dir = t.TempDir()
	device, data := fsType, ""
	switch fsType {
	case "tmpfs":
		data = fmt.Sprintf("size=%d,nr_inodes=%d", diskSize, diskFiles)
	default:
		image := filepath.Join(t.TempDir(), "disk.img")
		must(t, os.WriteFile(image, nil, 0o600))
		must(t, os.Truncate(image, diskSize))
		options := map[string][]string{
			"ext4": {"-q", "-F", "-m", "0"}, "xfs": {"-q", "-m", "reflink=1", "-l", "size=64m"},
		}[fsType]
		if out, err := exec.Command("mkfs."+fsType, append(options, image)...).CombinedOutput(); err != nil {
			t.Fatalf("mkfs.%s: %v: %s", fsType, err, out)
		}
		name, open, err := loop.Attach(image, loop.Options{Autoclear: true})
		must(t, err)
		defer unix.Close(open)
		device = name
	}
	must(t, unix.Mount(device, dir, fsType, unix.MS_NOATIME, data))
	t.Cleanup(func() { must(t, unmount(dir)) })
	return dir
}

// serve serves the driver on a pool until the test ends.
func serve(t *testing.T, p *pool.Pool) *client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	socket := filepath.Join(t.TempDir(), "csi.sock")
	served := make(chan error, 1)
	go func() { served <- (&Driver{Name: Name, Pool: p, Node: "node1"}).Serve(ctx, socket) }()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	must(t, err)
	t.Cleanup(func() {
		must(t, conn.Close())
		cancel()
		must(t, <-served)
	})
	return &client{t: t, p: p, ControllerClient: csi.NewControllerClient(conn)}
}
