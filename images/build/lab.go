package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// labSize is that of the lab's disk, which is sparse.
const labSize = "16G"

// labHooks finish what the packages' own scripts begin: $1 is the machine's root. Its initramfs has only what the disk
// needs: unpacking all of Debian's costs an emulated processor half a minute.
var labHooks = []string{
	`echo MODULES=list >"$1/etc/initramfs-tools/conf.d/lab"`,
	`printf '%s\n' virtio_pci virtio_blk ext4 >"$1/etc/initramfs-tools/modules"`,
	`chroot "$1" update-initramfs -u -k all`,
	`chroot "$1" systemctl enable systemd-networkd.service`,
	`chroot "$1" systemctl mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer systemd-networkd-wait-online.service`,
	`rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/hostname "$1"/etc/machine-id && touch "$1/etc/machine-id"`,
	`mkdir -p "$1/opt/virtkit"`,
	`chroot "$1" dpkg-query --show --showformat='${Package} ${Version} ${Architecture}\n' | LC_ALL=C sort >"$1/packages"`,
}

// buildLab makes the machine of `make lab`, which tests/lab/machine starts: its disk <out>/lab/disk.ext4, its vmlinuz
// and initrd, and below <out>/lab/qemu the QEMU that runs it, with its own libraries, so that it runs on any machine.
// Like the Debian guest it is installed, which needs root; QEMU is only unpacked.
func buildLab(ctx context.Context, b *build) error {
	out := filepath.Join(b.Out, "lab")
	inputs, err := b.inputs(b.path("lab"), b.path("launcher", "packages"))
	if err != nil {
		return err
	}
	stamp := filepath.Join(out, ".stamp")
	if was, err := os.ReadFile(stamp); err == nil && string(was) == inputs && !b.Refresh {
		return nil
	}
	if os.Geteuid() != 0 {
		return errors.New("installing Debian needs root: run this with sudo")
	}
	if err := errors.Join(os.RemoveAll(out), os.MkdirAll(out, 0o755)); err != nil {
		return err
	}
	if err := b.labQEMU(ctx, filepath.Join(out, "qemu")); err != nil {
		return fmt.Errorf("QEMU: %w", err)
	}
	if err := b.labDisk(ctx, out); err != nil {
		return fmt.Errorf("disk: %w", err)
	}
	return os.WriteFile(stamp, []byte(inputs), 0o644)
}

// labQEMU puts QEMU and what it needs below dir.
func (b *build) labQEMU(ctx context.Context, dir string) error {
	l, err := readPackages(b.path("launcher", "packages"))
	if err != nil {
		return err
	}
	d, err := b.fetchDebian(ctx, l)
	if err != nil {
		return err
	}
	list, err := os.ReadFile(b.path("lab", "qemu"))
	if err != nil {
		return err
	}
	t, err := pick(d.Files, string(list))
	if err != nil {
		return fmt.Errorf("images/lab/qemu: %w", err)
	}
	return t.writeDir(dir)
}

// labDisk installs the machine, and leaves its disk and what boots it in out.
func (b *build) labDisk(ctx context.Context, out string) error {
	installed, err := b.installDebian(ctx, "lab", labHooks)
	if err != nil {
		return err
	}
	root, err := os.MkdirTemp("", "virtkit-lab-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	if err := b.unpackInstalled(ctx, installed, root, "lab"); err != nil {
		return err
	}
	for to, pattern := range map[string]string{
		"vmlinuz": "boot/vmlinuz-*", "initrd": "boot/initrd.img-*", "packages": "packages",
	} {
		data, err := takeOut(root, pattern)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, to), data, 0o644); err != nil {
			return err
		}
	}
	format := exec.CommandContext(ctx, "mke2fs", "-q", "-t", "ext4", "-L", "lab", "-E", "lazy_itable_init=1",
		"-d", root, filepath.Join(out, "disk.ext4"), labSize)
	format.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	return runQuiet(format)
}

// writeDir writes the tree's files, which belong to the caller, below dir.
func (t tree) writeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range t.names() {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			return err
		}
		if err := overwrite(filepath.Join(dir, name), t[name]); err != nil {
			return err
		}
	}
	return nil
}

// takeOut removes the one file below root that matches a pattern, and returns what was in it.
func takeOut(root, pattern string) ([]byte, error) {
	found, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil || len(found) != 1 {
		return nil, fmt.Errorf("%s matches %d files of the installation, not one: %w", pattern, len(found), err)
	}
	data, err := os.ReadFile(found[0])
	if err != nil {
		return nil, err
	}
	return data, os.Remove(found[0])
}
