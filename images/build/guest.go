package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/zstd"
)

// buildTinyDisk makes tiny-disk: KubeVirt's container disk convention, one disk below /disk; and, for
// firmware.kernelBoot, the kernel and initramfs on it below /boot. The disk itself is also left at <out>/tiny.qcow2, to
// boot without Kubernetes.
func buildTinyDisk(ctx context.Context, b *build) error {
	const image = "tiny-disk"
	inputs, err := b.inputs(b.path("guest"), filepath.Join(b.Root, "go.sum"))
	if err != nil {
		return err
	}
	disk := filepath.Join(b.Out, "tiny.qcow2")
	if _, err := os.Stat(disk); err == nil && b.fresh(image, inputs) {
		return nil
	}
	boot, err := b.tinyBoot(ctx)
	if err != nil {
		return err
	}
	if err := (diskPlan{Label: "TINY", Boot: boot}).write(ctx, b.Epoch, disk+".new"); err != nil {
		return fmt.Errorf("make the disk: %w", err)
	}
	if err := os.Rename(disk+".new", disk); err != nil {
		return err
	}
	// Kernel and initramfs are compressed already; more would only take time when it is unpacked.
	return b.containerDisk(image, inputs, disk, "tiny guest", gzip.BestSpeed, func(t tree) {
		t.dir("boot", 0o555)
		t.file("boot/vmlinuz", 0o444, boot["vmlinuz"].Data)
		t.file("boot/initrd", 0o444, boot["initrd"].Data)
	})
}

// containerDisk makes an image of a disk, a file that goes below /disk under its name; add puts what else there is.
func (b *build) containerDisk(image, inputs, disk, comment string, level int, add func(tree)) error {
	data, err := os.ReadFile(disk)
	if err != nil {
		return err
	}
	l, err := b.layer(digest(inputs, string(data)), comment, level, func() (tree, error) {
		t := tree{}
		t.dir("disk", 0o555)
		t.file("disk/"+filepath.Base(disk), 0o444, data)
		add(t)
		return t, nil
	})
	if err != nil {
		return err
	}
	if err := b.writeImage(image, v1.Config{}, l); err != nil {
		return err
	}
	return b.stamped(image, inputs)
}

// tinyBoot is what the guest's boot partition holds: kernel, initramfs, boot loaders and their
// configuration.
func (b *build) tinyBoot(ctx context.Context) (tree, error) {
	packages, err := readPackages(b.path("guest", "packages"))
	if err != nil {
		return nil, err
	}
	d, err := b.fetchDebian(ctx, packages)
	if err != nil {
		return nil, err
	}
	linux, err := b.tinyKernel(ctx)
	if err != nil {
		return nil, err
	}
	kernel, err := one(linux.Files, "boot/vmlinuz-*")
	if err != nil {
		return nil, err
	}
	initramfs, err := b.initramfs(ctx, d, linux)
	if err != nil {
		return nil, fmt.Errorf("initramfs: %w", err)
	}
	t := tree{}
	t.file("vmlinuz", 0o644, linux.Files[kernel].Data)
	t.file("initrd", 0o644, initramfs)
	return t, b.loaders(t, d, "guest", "tiny.conf")
}

// tinyKernel is the guest's kernel with its modules, those among them that the script drivers builds.
func (b *build) tinyKernel(ctx context.Context) (*debian, error) {
	packages, err := readPackages(b.path("guest", "kernel"))
	if err != nil {
		return nil, err
	}
	script, err := os.ReadFile(b.path("guest", "drivers"))
	if err != nil {
		return nil, err
	}
	// What built them is large, and nobody asks for it again.
	linux, err := b.fetchDebian(ctx, packages, "chroot \"$1\" sh -c \"$(cat <<'SCRIPT'\n"+string(script)+"SCRIPT\n)\"",
		`rm -rf "$1/usr/src" "$1/usr/lib/gcc" "$1/tmp/ata"`)
	if err != nil {
		return nil, err
	}
	var kernel strings.Builder
	for line := range strings.Lines(linux.Manifest) {
		if strings.HasPrefix(line, "linux-image-") || strings.HasPrefix(line, "linux-source-") {
			kernel.WriteString(line)
		}
	}
	linux.Manifest = kernel.String()
	return linux, nil
}

// initramfs is the guest's whole root file system, packed.
func (b *build) initramfs(ctx context.Context, d, linux *debian) ([]byte, error) {
	list, err := os.ReadFile(b.path("guest", "files"))
	if err != nil {
		return nil, err
	}
	t, err := pick(d.Files, string(list))
	if err != nil {
		return nil, fmt.Errorf("images/guest/files: %w", err)
	}
	want, err := readList(b.path("guest", "modules"))
	if err != nil {
		return nil, err
	}
	modules, err := kernelModules(ctx, linux.Files, want)
	if err != nil {
		return nil, err
	}
	t.merge(modules)
	nocloud, err := b.goBinary(ctx, "./images/guest/nocloud")
	if err != nil {
		return nil, err
	}
	t.file("usr/sbin/nocloud", 0o755, nocloud)
	over, err := readDir(b.path("guest", "rootfs"))
	if err != nil {
		return nil, err
	}
	t.merge(over)
	t.file("usr/share/tiny/packages", 0o644, []byte(d.Manifest+linux.Manifest))
	if err := tinyRoot(ctx, t); err != nil {
		return nil, err
	}
	b.log("tiny-disk: %d files, %.1f MB unpacked", len(t), float64(t.size())/1e6)
	var packed bytes.Buffer
	// Single-threaded, so that the frames do not depend on the machine.
	z, err := zstd.NewWriter(&packed, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(8<<20))
	if err != nil {
		return nil, err
	}
	if err := t.writeCPIO(z, b.Epoch); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// tinyRoot adds what the packages and the overlay do not have: the directories everything is
// mounted on, the merged /usr, busybox's names.
func tinyRoot(ctx context.Context, t tree) error {
	for _, d := range []string{"dev", "proc", "sys", "run", "tmp", "mnt", "home", "var/log", "var/lib"} {
		t.dir(d, 0o755)
	}
	t.dir("root", 0o700)
	for from, to := range map[string]string{
		"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64",
		"init": "usr/bin/busybox", "var/run": "../run", "etc/mtab": "../proc/mounts",
	} {
		t.symlink(from, to)
	}
	shadow := t["etc/shadow"]
	shadow.Mode = 0o600
	t["etc/shadow"] = shadow

	applets, err := busyboxApplets(ctx, t["usr/bin/busybox"].Data)
	if err != nil {
		return err
	}
	for _, a := range applets {
		_, bin := t["usr/bin/"+a]
		_, sbin := t["usr/sbin/"+a]
		if !bin && !sbin {
			t.symlink("usr/bin/"+a, "busybox")
		}
	}
	t.symlink("usr/sbin/getty", "../bin/busybox")
	t.symlink("usr/sbin/modprobe", "../bin/busybox") // the kernel calls /sbin/modprobe
	return nil
}

// busyboxApplets asks busybox, which is static and so runs anywhere, for its names.
func busyboxApplets(ctx context.Context, binary []byte) ([]string, error) {
	dir, err := os.MkdirTemp("", "virtkit-busybox-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "busybox")
	if err := os.WriteFile(file, binary, 0o755); err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, file, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("ask busybox for its names: %w", err)
	}
	return strings.Fields(string(out)), nil
}

// goBinary builds a static Go program of this module for the guest.
func (b *build) goBinary(ctx context.Context, pkg string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "virtkit-go-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "out")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=",
		"-o", out, pkg)
	cmd.Dir = b.Root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if err := runQuiet(cmd); err != nil {
		return nil, fmt.Errorf("build %s: %w", pkg, err)
	}
	return os.ReadFile(out)
}

// one finds the only file that matches a pattern.
func one(t tree, pattern string) (string, error) {
	re, err := glob(pattern)
	if err != nil {
		return "", err
	}
	var found []string
	for _, name := range t.names() {
		if re.MatchString(name) {
			found = append(found, name)
		}
	}
	if len(found) != 1 {
		return "", fmt.Errorf("%s matches %d files of the packages, not one: %v", pattern, len(found), found)
	}
	return found[0], nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
