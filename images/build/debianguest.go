package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	// debianRoot is the UUID of the guest's root file system and debianSize the size of its disk.
	debianRoot = "6b697476-6465-6269-616e-00726f6f7400"
	debianSize = "2G"
)

// debianHooks finish what the packages' own scripts begin: $1 is the guest's root. What is of one machine is taken
// out, so that every guest makes its own, and what only costs time in a guest that lives for minutes is off.
var debianHooks = []string{
	`chroot "$1" systemctl enable systemd-networkd.service`,
	`chroot "$1" systemctl mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer`,
	`rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/hostname`,
	`chroot "$1" dpkg-query --show --showformat='${Package} ${Version} ${Architecture}\n' | LC_ALL=C sort >"$1/packages"`,
}

// buildDebianDisk makes debian-disk: Debian as a cloud has it, with systemd, cloud-init, sshd and the guest agent, on a
// container disk. Unlike the tiny guest it is installed, its packages' scripts run, and that needs root. The disk
// itself is also left at <out>/debian.qcow2.
func buildDebianDisk(ctx context.Context, b *build) error {
	const image = "debian-disk"
	inputs, err := b.inputs(b.path("debian"))
	if err != nil {
		return err
	}
	disk := filepath.Join(b.Out, "debian.qcow2")
	if _, err := os.Stat(disk); err == nil && b.fresh(image, inputs) {
		return nil
	}
	if os.Geteuid() != 0 {
		return errors.New("installing Debian needs root: run this with sudo")
	}
	if err := b.debianDisk(ctx, disk); err != nil {
		return err
	}
	return b.containerDisk(image, inputs, disk, "Debian guest", gzip.NoCompression, func(tree) {})
}

// debianDisk installs Debian and makes a disk of it.
func (b *build) debianDisk(ctx context.Context, out string) error {
	installed, err := b.installDebian(ctx, "debian", debianHooks)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "virtkit-debian-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	root, image := filepath.Join(work, "root"), filepath.Join(work, "root.ext4")
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	if err := b.unpackInstalled(ctx, installed, root, "debian"); err != nil {
		return err
	}
	boot, err := b.debianBoot(ctx, root)
	if err != nil {
		return err
	}
	format := exec.CommandContext(ctx, "mke2fs", "-q", "-t", "ext4", "-L", "debian", "-U", debianRoot,
		"-E", "hash_seed="+debianRoot+",lazy_itable_init=1", "-d", root, image, debianSize)
	format.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", b.Epoch.Unix()), "PATH="+os.Getenv("PATH")+
		":/usr/sbin:/sbin")
	if err := runQuiet(format); err != nil {
		return err
	}
	b.log("debian-disk: %d packages", strings.Count(string(boot["packages"].Data), "\n"))
	delete(boot, "packages")
	err = diskPlan{Label: "DEBIAN", Boot: boot, Root: image, Compress: true}.write(ctx, b.Epoch, out+".new")
	if err != nil {
		return fmt.Errorf("make the disk: %w", err)
	}
	return os.Rename(out+".new", out)
}

// installDebian gives a tar of an installed Debian with the packages of an image, from the cache when it is there.
func (b *build) installDebian(ctx context.Context, image string, hooks []string) (string, error) {
	l, err := readPackages(b.path(image, "packages"))
	if err != nil {
		return "", err
	}
	key := digest("installed 1", l.Suite, b.Mirrors.Main, b.Mirrors.Security, strings.Join(l.Packages, "\n"),
		strings.Join(hooks, "\n"))
	cached := filepath.Join(b.Cache, "installed-"+key[:16]+".tar")
	if _, err := os.Stat(cached); err == nil && !b.Refresh {
		return cached, nil
	}
	mode := "root"
	if os.Geteuid() != 0 {
		mode = "unshare"
	}
	flags := []string{
		"--variant=minbase", "--mode=" + mode,
		"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/doc/*",
		"--dpkgopt=path-exclude=/usr/share/locale/*",
	}
	for _, hook := range hooks {
		flags = append(flags, "--customize-hook="+hook)
	}
	return cached, b.mmdebstrap(ctx, l, cached, flags...)
}

// unpackInstalled unpacks such a tar into root, and an image's own files over it.
func (b *build) unpackInstalled(ctx context.Context, installed, root, image string) error {
	unpack := exec.CommandContext(ctx, "tar", "--extract", "--numeric-owner", "--xattrs", "--xattrs-include=*",
		"--file", installed, "--directory", root)
	if err := runQuiet(unpack); err != nil {
		return err
	}
	over, err := readDir(b.path(image, "rootfs"))
	if err != nil {
		return err
	}
	for _, name := range over.names() {
		if err := overwrite(filepath.Join(root, name), over[name]); err != nil {
			return err
		}
	}
	return nil
}

// debianBoot moves what boots the guest out of its root: kernel, initramfs and list of packages, and adds the boot
// loaders and their configuration.
func (b *build) debianBoot(ctx context.Context, root string) (tree, error) {
	t := tree{}
	for to, pattern := range map[string]string{
		"vmlinuz": "boot/vmlinuz-*", "initrd": "boot/initrd.img-*",
		"packages": "packages",
	} {
		data, err := takeOut(root, pattern)
		if err != nil {
			return nil, err
		}
		t.file(to, 0o644, data)
	}
	loaders, err := readPackages(b.path("debian", "loaders"))
	if err != nil {
		return nil, err
	}
	d, err := b.fetchDebian(ctx, loaders)
	if err != nil {
		return nil, err
	}
	return t, b.loaders(t, d, "debian", "debian.conf")
}

// loaders adds to a boot partition what starts its vmlinuz and initrd, from the signed packages in d and the
// configuration in the guest's boot directory, of which entry is systemd-boot's.
func (b *build) loaders(t tree, d *debian, guest, entry string) error {
	for to, from := range map[string]string{
		// shim starts grubx64.efi beside it whatever that is; both are signed, so is the kernel.
		"EFI/BOOT/BOOTX64.EFI": "usr/lib/shim/shimx64.efi.signed",
		"EFI/BOOT/grubx64.efi": "usr/lib/systemd/boot/efi/systemd-bootx64.efi.signed",
	} {
		n, ok := d.Files[from]
		if !ok {
			return fmt.Errorf("no package has %s", from)
		}
		t.file(to, 0o644, n.Data)
	}
	cmdline, err := os.ReadFile(b.path(guest, "boot", "cmdline"))
	if err != nil {
		return err
	}
	for to, from := range map[string]string{
		"syslinux.cfg":            "syslinux.cfg",
		"loader/loader.conf":      "loader.conf",
		"loader/entries/" + entry: entry,
	} {
		text, err := os.ReadFile(b.path(guest, "boot", from))
		if err != nil {
			return err
		}
		text = bytes.ReplaceAll(text, []byte("@CMDLINE@"), bytes.TrimSpace(cmdline))
		t.file(to, 0o644, bytes.ReplaceAll(text, []byte("@ROOT@"), []byte(debianRoot)))
	}
	return nil
}

// overwrite puts a file of the repository into a directory tree.
func overwrite(name string, n node) error {
	switch n.Type {
	case tar.TypeDir:
		return os.MkdirAll(name, os.FileMode(n.Mode))
	case tar.TypeSymlink:
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return os.Symlink(n.Link, name)
	}
	return os.WriteFile(name, bytes.ReplaceAll(n.Data, []byte("@ROOT@"), []byte(debianRoot)), os.FileMode(n.Mode))
}
