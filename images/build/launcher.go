package main

import (
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// buildLauncher makes virt-launcher in two layers: QEMU, libvirt and what they need from
// Debian, which changes rarely and takes most of the space, and above it the launcher itself.
func buildLauncher(ctx context.Context, b *build) error {
	const image = "virt-launcher"
	binary := filepath.Join(b.Bin, "virt-launcher")
	inputs, err := b.inputs(binary, b.path("launcher"))
	if err != nil {
		return fmt.Errorf("%w (make build builds it)", err)
	}
	if b.fresh(image, inputs) {
		return nil
	}
	base, err := b.launcherBase(ctx)
	if err != nil {
		return err
	}
	top, err := b.layer(inputs, "virt-launcher", gzip.BestSpeed, func() (tree, error) {
		data, err := os.ReadFile(binary)
		if err != nil {
			return nil, err
		}
		t := tree{}
		t.file("usr/bin/virt-launcher", 0o755, data)
		return t, nil
	})
	if err != nil {
		return err
	}
	err = b.writeImage(image, v1.Config{
		User:       fmt.Sprintf("%d:%d", names.User, names.Group),
		Entrypoint: []string{"/usr/bin/virt-launcher"},
		Env:        []string{"PATH=/usr/sbin:/usr/bin", "LANG=C.UTF-8"},
		WorkingDir: "/",
	}, base, top)
	if err != nil {
		return err
	}
	return b.stamped(image, inputs)
}

// launcherBase is the layer of Debian's files: the packages of launcher/packages, of those
// the files of launcher/files, and launcher/rootfs over them.
func (b *build) launcherBase(ctx context.Context) (*layer, error) {
	inputs, err := b.inputsWithoutTag(b.path("launcher"))
	if err != nil {
		return nil, err
	}
	return b.layer(inputs, "QEMU and libvirt from Debian", gzip.DefaultCompression, func() (tree, error) {
		packages, err := readPackages(b.path("launcher", "packages"))
		if err != nil {
			return nil, err
		}
		list, err := os.ReadFile(b.path("launcher", "files"))
		if err != nil {
			return nil, err
		}
		d, err := b.fetchDebian(ctx, packages)
		if err != nil {
			return nil, err
		}
		t, err := pick(d.Files, string(list))
		if err != nil {
			return nil, fmt.Errorf("images/launcher/files: %w", err)
		}
		over, err := readDir(b.path("launcher", "rootfs"))
		if err != nil {
			return nil, err
		}
		t.merge(over)
		launcherDirs(t)
		t.file("usr/share/virtkit/packages", 0o644, []byte(d.Manifest))
		b.log("virt-launcher: %d files, %.0f MB, from %d packages", len(t), float64(t.size())/1e6,
			strings.Count(d.Manifest, "\n"))
		return t, nil
	})
}

// launcherDirs adds the directories that volumes and the kernel are mounted on, because the root
// of a launcher pod is read-only, and the user everything in it runs as.
func launcherDirs(t tree) {
	for _, d := range []string{
		"dev", "proc", "sys", "etc", "root",
		names.RunDir, names.DisksDir, names.ContainerDisksDir, names.ClaimsDir, names.SecretsDir, names.FilesystemsDir,
		names.SharedDir,
	} {
		t.dir(d, 0o755)
	}
	t.dir("tmp", 0o1777)
	t.dir("var/tmp", 0o1777)
	t.file("etc/passwd", 0o644,
		fmt.Appendf(nil, "root:x:0:0:root:/root:/usr/sbin/nologin\nqemu:x:%d:%d:qemu:%s:/bin/sh\n", names.User,
			names.Group, names.RunDir))
	t.file("etc/group", 0o644, fmt.Appendf(nil, "root:x:0:\nqemu:x:%d:\n", names.Group))
}
