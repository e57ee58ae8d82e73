//go:build integration

package driver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/virtkit/virtkit/cmd/virt-local-csi/internal/pool"
)

const (
	// diskSize is that of the disk that a pool is filled on; the pool leaves 256 MiB of it alone.
	diskSize   = 800 << 20
	volumeSize = 64 << 20
	// diskFiles is how many files a tmpfs has room for.
	diskFiles = 40
)

// A pool that is full says so, for whatever is asked of it, and what is in it stays as it is and can be written to its
// last byte. Once something is deleted there is room again.
func TestFullPool(t *testing.T) {
	for name, fsType := range map[string]string{"on a disk with reflinks": "xfs", "in a file": "ext4"} {
		t.Run(name, func(t *testing.T) {
			p := openPoolIn(t, disk(t, fsType))
			c := serve(t, p)
			var all []string
			for made := true; made; {
				made = false
				for c.create(fmt.Sprint("v", len(all)), nil) == nil {
					all, made = append(all, fmt.Sprint("v", len(all))), true
				}
				// Nothing else has taken the room that they were promised. What they did not need of it is used, too.
				for i, id := range all {
					c.fill(id, byte('a'+i))
				}
			}
			if len(all) < 4 || len(all) > diskSize/volumeSize {
				t.Fatalf("the disk has room for %v", all)
			}
			check := func(when string) {
				t.Helper()
				for i, id := range all {
					c.has(when, p.Image(id), byte('a'+i))
				}
				if left, err := filepath.Glob(filepath.Join(p.Root, "new", "*")); err != nil || len(left) > 0 {
					t.Errorf("%s: half made: %v, %v", when, left, err)
				}
				if found, err := p.Volumes(); err != nil || len(found) != len(all) {
					t.Errorf("%s: volumes %+v, %v", when, found, err)
				}
			}
			wantFull(t, "a volume", c.create("more", nil))
			wantFull(t, "a snapshot", c.snapshot("s", all[0]))
			wantFull(t, "a clone", c.create("clone", ofVolume(all[0])))
			wantFull(t, "an expansion", c.expand(all[0]))
			check("full")

			// Room comes back with each volume that is deleted, once the disk has it.
			made := func(what string, make func() error) {
				t.Helper()
				tick := time.NewTicker(100 * time.Millisecond)
				defer tick.Stop()
				for tries := 1; ; tries++ {
					err := make()
					if err == nil {
						return
					}
					wantFull(t, what, err)
					if <-tick.C; tries%50 != 1 {
						continue
					}
					if len(all) == 2 {
						t.Fatalf("%s: %v", what, err)
					}
					c.remove(all[len(all)-1])
					all = all[:len(all)-1]
					flush(t, p.Root)
				}
			}
			made("a snapshot", func() error { return c.snapshot("s", all[0]) })
			c.fill(all[0], 'z') // shares nothing with its snapshot any more
			made("a volume of the snapshot", func() error { return c.create("restored", ofSnapshot("s")) })
			c.has("restored", p.Image("restored"), 'a')
			c.has("overwritten", p.Image(all[0]), 'z')
			c.has("another", p.Image(all[1]), 'b')
		})
	}
}

// Other programs fill the disk that the pool is on. Nothing is made then, what is there is not damaged, and it can be
// deleted; once the disk has room all goes on.
func TestFullDisk(t *testing.T) {
	for name, fsType := range map[string]string{"on a disk with reflinks": "xfs", "in a file": "ext4"} {
		t.Run(name, func(t *testing.T) {
			dir := disk(t, fsType)
			p := openPoolIn(t, dir)
			c := serve(t, p)
			for i, id := range []string{"a", "b"} {
				if err := c.create(id, nil); err != nil {
					t.Fatal(err)
				}
				c.fill(id, byte('a'+i))
			}
			_, err := p.Create(t.Context(), pool.Volume{Name: "files", Size: volumeSize, FSType: "ext4"})
			must(t, err)
			mounted := stage(t, p, "files")
			precious := bytes.Repeat([]byte("precious"), 1<<17)
			must(t, os.WriteFile(filepath.Join(mounted, "before"), precious, 0o600))
			flush(t, mounted)
			empty := fillDisk(t, dir)

			wantFull(t, "a volume", c.create("c", nil))
			wantFull(t, "a snapshot", c.snapshot("s", "a"))
			wantFull(t, "a clone", c.create("clone", ofVolume("a")))
			wantFull(t, "an expansion", c.expand("a"))
			c.fill("a", 'A') // in place
			c.has("in place", p.Image("a"), 'A')
			// What there is no room for is an error for who writes it, and not of the rest.
			err = os.WriteFile(filepath.Join(mounted, "after"), make([]byte, volumeSize/2), 0o600)
			t.Logf("a file on a disk that is full: %v, %v", err, syncFile(filepath.Join(mounted, "after")))
			if text, err := os.ReadFile(filepath.Join(mounted, "before")); err != nil || !bytes.Equal(text, precious) {
				t.Errorf("a file from before: %d bytes, %v", len(text), err)
			}
			c.remove("b")

			empty()
			c.has("after that", p.Image("a"), 'A')
			if err := c.create("c", ofVolume("a")); err != nil {
				t.Fatalf("a clone, with room: %v", err)
			}
			c.has("a clone", p.Image("c"), 'A')
			// A file system that could not write is read-only until it is mounted again.
			must(t, unmount(mounted))
			mounted = stage(t, p, "files")
			must(t, os.WriteFile(filepath.Join(mounted, "later"), precious, 0o600))
			flush(t, mounted)
			for _, file := range []string{"before", "later"} {
				if text, err := os.ReadFile(filepath.Join(mounted, file)); err != nil || !bytes.Equal(text, precious) {
					t.Errorf("file %s: %d bytes, %v", file, len(text), err)
				}
			}
			must(t, unmount(mounted))
			must(t, p.Detach("files", "node1"))
			if out, err := exec.Command("e2fsck", "-f", "-n", p.Image("files")).CombinedOutput(); err != nil {
				t.Errorf("the file system is damaged: %v\n%s", err, out)
			}
		})
	}
}

// A disk whose file system has no room for one more file is full, too.
func TestNoMoreFiles(t *testing.T) {
	p := openWithoutXFS(t, disk(t, "tmpfs"))
	c := serve(t, p)
	var err error
	for made := 0; err == nil && made < diskFiles; made++ {
		_, err = p.Create(t.Context(), pool.Volume{Name: fmt.Sprint("v", made), Size: 4096})
	}
	if !errors.Is(err, pool.ErrFull) {
		t.Errorf("one more: %v", err)
	}
	wantFull(t, "one more", c.create("more", nil))
	if left, err := filepath.Glob(filepath.Join(p.Root, "new", "*")); err != nil || len(left) > 0 {
		t.Errorf("half made: %v, %v", left, err)
	}
	c.remove("v0")
	if err := c.create("more", nil); err != nil {
		t.Errorf("with room: %v", err)
	}
}

// A pool on a file system without reflinks says what it cannot do: it copies, without holes, volumes that nobody uses.
func TestWithoutReflinks(t *testing.T) {
	for _, fsType := range []string{"ext4", "tmpfs"} {
		t.Run(fsType, func(t *testing.T) {
			p := openWithoutXFS(t, disk(t, fsType))
			if said := p.Limits(); p.Reflinks || !strings.Contains(said, "clones are copies") ||
				!strings.Contains(said, "xfsprogs") {
				t.Fatalf("reflinks %t: it says %q", p.Reflinks, said)
			}
			c := serve(t, p)
			must(t, c.create("v", nil))
			f, err := os.OpenFile(p.Image("v"), os.O_WRONLY, 0)
			must(t, err)
			_, err = f.WriteAt([]byte("late"), volumeSize/2)
			must(t, errors.Join(err, f.Close()))
			must(t, c.snapshot("s", "v"))
			must(t, c.create("clone", ofVolume("v")))
			for _, image := range []string{p.Image("clone"), filepath.Join(p.Root, "snapshots/s/image")} {
				data, err := os.ReadFile(image)
				must(t, err)
				if len(data) != volumeSize || string(data[volumeSize/2:volumeSize/2+4]) != "late" {
					t.Errorf("%s has %d bytes", image, len(data))
				}
				var st unix.Stat_t
				must(t, unix.Stat(image, &st))
				if st.Blocks*512 > volumeSize/8 {
					t.Errorf("%s takes %d bytes: its holes are filled", image, st.Blocks*512)
				}
			}
			if _, _, err := p.Attach("v", "node1"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { must(t, p.Detach("v", "node1")) })
			for what, err := range map[string]error{
				"a snapshot": c.snapshot("s2", "v"), "a clone": c.create("clone2", ofVolume("v")),
			} {
				if said := status.Convert(err).Message(); status.Code(err) != codes.FailedPrecondition ||
					!strings.Contains(said, "without reflinks") || !strings.Contains(said, "install xfsprogs") {
					t.Errorf("%s of a volume in use: %v", what, err)
				}
			}
		})
	}
	if said := (&pool.Pool{Reflinks: true}).Limits(); said != "" {
		t.Errorf("with reflinks it says %q", said)
	}
}

// openWithoutXFS opens a pool without mkfs.xfs: it is a directory.
func openWithoutXFS(t *testing.T, dir string) *pool.Pool {
	t.Helper()
	path := os.Getenv("PATH")
	t.Setenv("PATH", "")
	p := openPoolIn(t, dir)
	must(t, os.Setenv("PATH", path)) //nolint:usetesting // it is to be so in the pool's cleanup, too
	return p
}

// wantFull checks that a call was refused because there is no room.
func wantFull(t *testing.T, what string, err error) {
	t.Helper()
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(status.Convert(err).Message(), "no room") {
		t.Errorf("%s: %v, want that there is no room", what, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fillDisk writes to a disk what it has room for, until the returned function is called.
func fillDisk(t *testing.T, dir string) (empty func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	t.Cleanup(func() { _ = os.Remove(path) }) // before the pool is closed, which a full disk would hold up
	f, err := os.Create(path)
	must(t, err)
	for _, piece := range []int{1 << 20, 4096} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, piece))
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return func() {
		must(t, os.Remove(path))
		flush(t, dir)
	}
}

// flush has a file system written.
func flush(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	must(t, errors.Join(unix.Syncfs(int(f.Fd())), f.Close()))
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// client calls a driver.
type client struct {
	t *testing.T
	p *pool.Pool
	csi.ControllerClient
}

func (c *client) create(id string, source *csi.VolumeContentSource) error {
	_, err := c.CreateVolume(c.t.Context(), request(func(r *csi.CreateVolumeRequest) {
		r.Name, r.CapacityRange.RequiredBytes, r.VolumeContentSource = id, volumeSize, source
	}))
	return err
}

func (c *client) snapshot(id, volume string) error {
	_, err := c.CreateSnapshot(c.t.Context(), &csi.CreateSnapshotRequest{Name: id, SourceVolumeId: volume})
	return err
}

func (c *client) expand(id string) error {
	_, err := c.ControllerExpandVolume(c.t.Context(), &csi.ControllerExpandVolumeRequest{
		VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: 2 * volumeSize},
	})
	return err
}

func (c *client) remove(id string) {
	c.t.Helper()
	if _, err := c.DeleteVolume(c.t.Context(), &csi.DeleteVolumeRequest{VolumeId: id}); err != nil {
		c.t.Fatalf("delete volume %s: %v", id, err)
	}
}

// fill writes a volume to its last byte.
func (c *client) fill(id string, with byte) {
	c.t.Helper()
	f, err := os.OpenFile(c.p.Image(id), os.O_WRONLY, 0)
	must(c.t, err)
	_, err = io.Copy(f, bytes.NewReader(bytes.Repeat([]byte{with}, volumeSize)))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		c.t.Fatalf("write volume %s: %v", id, err)
	}
}

// has checks that an image is what was filled into it.
func (c *client) has(when, image string, with byte) {
	c.t.Helper()
	data, err := os.ReadFile(image)
	if err != nil || !bytes.Equal(data, bytes.Repeat([]byte{with}, volumeSize)) {
		c.t.Errorf("%s: %s is damaged: %d bytes, %v", when, image, len(data), err)
	}
}

func ofVolume(id string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
		Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: id},
	}}
}

func ofSnapshot(id string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: id},
	}}
}
