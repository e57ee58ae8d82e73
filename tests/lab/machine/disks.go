package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The sizes of what can be passed through, of sparse files.
var images = map[string]int64{"nvme.img": 256 << 20, "usb.img": 64 << 20, "lun.img": 64 << 20}

// build is what of the repository the machine has at /opt/virtkit: what `make up` runs.
var build = []string{
	"bin/virtctl", "bin/virt-local", "dev/up.sh", "dev/down.sh", "dev/step.sh",
	"bin/images/virt-server.tar", "bin/images/virt-launcher.tar", "bin/images/tiny-disk.tar",
}

// makeDisks makes the machine's disks in its directory. Nothing is mounted.
func makeDisks(ctx context.Context, root string, f files, dir string) error {
	if _, err := os.Stat(f.disk); err != nil {
		return fmt.Errorf("%w (make lab makes it)", err)
	}
	for name, size := range images {
		if err := sparse(filepath.Join(dir, name), size); err != nil {
			return err
		}
	}
	overlay := f.command("qemu-img", "create", "-q", "-f", "qcow2", "-b", f.disk, "-F", "raw",
		filepath.Join(dir, "root.qcow2"))
	if err := quietly(ctx, overlay...); err != nil {
		return err
	}
	tree := filepath.Join(dir, "build")
	if err := copyBuild(root, tree); err != nil {
		return fmt.Errorf("copy the build: %w", err)
	}
	if err := makeKeys(filepath.Join(tree, "lab"), dir); err != nil {
		return err
	}
	size, err := sizeOf(tree)
	if err != nil {
		return err
	}
	disk := filepath.Join(dir, "build.ext4")
	// A sixteenth more, and some megabytes, for what a file system has besides files.
	if err := sparse(disk, size+size/16+16<<20); err != nil {
		return err
	}
	mke2fs := "mke2fs"
	if _, err := exec.LookPath(mke2fs); err != nil {
		mke2fs = "/sbin/mke2fs" // not on everybody's PATH
	}
	err = quietly(ctx, mke2fs, "-q", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-L", "build",
		"-E", "root_owner=0:0", "-d", tree, disk)
	return errors.Join(err, os.RemoveAll(tree))
}

// copyBuild copies what the machine needs of the repository.
func copyBuild(root, tree string) error {
	for _, name := range build {
		to := filepath.Join(tree, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := copyFile(filepath.Join(root, name), to); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

func sizeOf(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		size += info.Size() + 4096
		return nil
	})
	return size, err
}

// sparse makes a file of that size without anything in it.
func sparse(name string, size int64) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Close())
}

// quietly runs a program, and says what it said only when it fails.
func quietly(ctx context.Context, argv ...string) error {
	said, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", argv[len(argv)-1], err, strings.TrimSpace(string(said)))
	}
	return nil
}
