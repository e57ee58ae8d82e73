package main

import (
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

const (
	// applianceDir is where the appliance of libguestfs is in the image, as in KubeVirt's.
	applianceDir = "usr/local/lib/guestfs/appliance"
	// applianceSize is that of the appliance's root. What the tools leave there goes into a file of the pod's.
	applianceSize = "512M"
	guestfsHome   = "/home/guestfs"
)

// guestfsHooks make the appliance, a kernel with an initramfs and a root, of the packages that are installed: $1 is the
// image's root. What only the appliance needs is not in the image a second time, nor what no tool does: an SDK of
// Amazon's for one of virt-v2v's sources, QEMU for 32 bits.
var guestfsHooks = []string{
	`mkdir -p "$1/` + applianceDir + `"`,
	`chroot "$1" supermin --build --copy-kernel --format ext2 --host-cpu x86_64 -o /` + applianceDir +
		` /usr/lib/x86_64-linux-gnu/guestfs/supermin.d`,
	`chroot "$1" e2fsck -fy /` + applianceDir + `/root || test $? -eq 1`,
	`chroot "$1" resize2fs /` + applianceDir + `/root ` + applianceSize,
	`: >"$1/` + applianceDir + `/README.fixed"`,
	`chmod 0644 "$1/` + applianceDir + `"/*`,
	`chroot "$1" dpkg-query --show --showformat='${Package} ${Version} ${Architecture}\n' |
	LC_ALL=C sort >"$1/packages"`,
	`rm -rf "$1"/boot/* "$1"/usr/lib/modules "$1"/var/lib/apt/lists "$1"/var/cache/* ` +
		`"$1"/usr/lib/python3/dist-packages/boto* "$1"/usr/bin/qemu-system-i386 "$1"/usr/bin/qemu-system-x86_64-microvm`,
}

// buildGuestfs makes libguestfs-tools, of which `virtctl guestfs` makes its pods: libguestfs, its tools and virt-v2v
// from Debian, and the appliance, so that no pod has to make one.
func buildGuestfs(ctx context.Context, b *build) error {
	const image = "libguestfs-tools"
	inputs, err := b.inputs(b.path(image))
	if err != nil {
		return err
	}
	if b.fresh(image, inputs) {
		return nil
	}
	key, err := b.inputsWithoutTag(b.path(image))
	if err != nil {
		return err
	}
	tools, err := b.layer(key, "libguestfs from Debian", gzip.DefaultCompression, func() (tree, error) {
		return b.guestfsTree(ctx, image)
	})
	if err != nil {
		return err
	}
	err = b.writeImage(image, v1.Config{
		User:       fmt.Sprintf("%d:%d", names.User, names.Group),
		Entrypoint: []string{"/entrypoint.sh"},
		Env: []string{
			"PATH=/usr/sbin:/usr/bin", "LANG=C.UTF-8", "HOME=" + guestfsHome,
			"LIBGUESTFS_BACKEND=direct", "LIBGUESTFS_PATH=/" + applianceDir,
		},
		WorkingDir: "/",
	}, tools)
	if err != nil {
		return err
	}
	return b.stamped(image, inputs)
}

// guestfsTree installs the packages and adds what a pod of any user needs.
func (b *build) guestfsTree(ctx context.Context, image string) (tree, error) {
	installed, err := b.installDebian(ctx, image, guestfsHooks)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(installed)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := readTree(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", installed, err)
	}
	manifest, ok := t["packages"]
	if !ok {
		return nil, fmt.Errorf("%s has no list of packages; remove it and try again", installed)
	}
	delete(t, "packages")
	over, err := readDir(b.path(image, "rootfs"))
	if err != nil {
		return nil, err
	}
	t.merge(over)
	for _, d := range []string{"disk", guestfsHome} {
		t.dir(d, 0o755)
	}
	t.file("usr/share/virtkit/packages", 0o644, manifest.Data)
	for file, line := range map[string]string{
		"etc/passwd": fmt.Sprintf("guestfs:x:%d:%d:guestfs:%s:/bin/bash\n", names.User, names.Group, guestfsHome),
		"etc/group":  fmt.Sprintf("guestfs:x:%d:\n", names.Group),
	} {
		t.file(file, 0o644, append(t[file].Data, line...))
	}
	b.log("%s: %d files, %.0f MB, from %d packages", image, len(t), float64(t.size())/1e6,
		strings.Count(string(manifest.Data), "\n"))
	return t, nil
}
