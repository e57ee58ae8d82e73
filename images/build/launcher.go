package main

import (
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path"
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
		t.symlink("usr/bin/"+names.VirtFreezer, names.VirtLauncher)
		return t, nil
	})
	if err != nil {
		return err
	}
	err = b.writeImage(image, v1.Config{
		User:       fmt.Sprintf("%d:%d", names.User, names.Group),
		Entrypoint: []string{"/usr/bin/virt-launcher"},
		Env:        launcherEnvironment,
		WorkingDir: "/",
	}, base, top)
	if err != nil {
		return err
	}
	return b.stamped(image, inputs)
}

// libvirtSockets is where KubeVirt's launcher has the sockets of its libvirt daemon, and people look for them.
const libvirtSockets = "/var/run/libvirt"

// launcherEnvironment is that of everything that runs in the image. virsh, as the pod's user, finds the daemon by it:
// without a URI by the first of its variables, with qemu:///session by the directory of sockets.
var launcherEnvironment = []string{
	"PATH=/usr/sbin:/usr/bin",
	"LANG=C.UTF-8",
	"LIBVIRT_DEFAULT_URI=qemu+unix:///session?socket=" + path.Join(libvirtSockets, "virtqemud-sock"),
	"XDG_RUNTIME_DIR=" + path.Dir(libvirtSockets),
	"LIBVIRT_AUTOSTART=0", // it would write into the read-only root
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
	for _, name := range []string{"virtqemud-sock", "libvirt-sock"} {
		t.symlink(path.Join(libvirtSockets, name), path.Join(names.RunDir, names.SocketLibvirt))
	}
	t.dir("tmp", 0o1777)
	t.dir("var/tmp", 0o1777)
	t.file("etc/passwd", 0o644,
		fmt.Appendf(nil, "root:x:0:0:root:/root:/usr/sbin/nologin\nqemu:x:%d:%d:qemu:%s:/bin/sh\n", names.User,
			names.Group, names.RunDir))
	t.file("etc/group", 0o644, fmt.Appendf(nil, "root:x:0:\nqemu:x:%d:\n", names.Group))
}
