// Command build makes virtkit's container images and its guests for tests from Debian packages, without
// Docker and without mounting anything:
//
//	go run ./images/build --tag v0.1.0 --out bin/images virt-server virt-launcher tiny-disk
//
// Each target leaves <out>/<target>.tar, a docker-archive that `virt-local load-image`, `ctr image
// import` and `crane push` take. The steps of a target, each in a file of its own:
//
//	packages ─ mmdebstrap ─► tree ─ pick files, close over libraries ─► layer ─► image
//	                          └─ kernel modules, overlay ─ cpio ─► initramfs ─ FAT, qcow2 ─► layer ─► image
//
// The same inputs give the same bytes: every tar and cpio is sorted, owned by numbers and dated
// SOURCE_DATE_EPOCH. A target whose inputs did not change is not built again, and what Debian
// delivered is kept in the cache directory until --refresh asks for newer packages.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// defaultEpoch dates everything in the images when SOURCE_DATE_EPOCH is not set:
// 2026-01-01T00:00:00Z. A constant, so that a commit that changes nothing changes no digest.
const defaultEpoch = 1767225600

// options is the command line.
type options struct {
	Root     string // the repository
	Out      string // where images go
	Cache    string // where Debian's packages and finished layers are kept
	Bin      string // where the Go binaries to put into images are
	Registry string // prefix of the images' names
	Tag      string // tag of the images' names
	Mirrors  mirrors
	Refresh  bool
	Epoch    time.Time
	Targets  []string
}

// build is what a target needs to do its work.
type build struct {
	options
	log func(format string, args ...any)
}

// targets in the order in which they are built.
var targets = []struct {
	name  string
	build func(context.Context, *build) error
	asked bool // is built when it is asked for by name only
}{
	{name: "tiny-disk", build: buildTinyDisk},
	{name: "debian-disk", build: buildDebianDisk, asked: true},
	{name: "lab", build: buildLab, asked: true},
	{name: "libguestfs-tools", build: buildGuestfs, asked: true},
	{name: "virt-launcher", build: buildLauncher},
	{name: "virt-server", build: buildServer},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	b := &build{options: o, log: func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "images: "+format+"\n", args...)
	}}
	want := map[string]bool{}
	for _, t := range o.Targets {
		want[t] = true
	}
	for _, t := range targets {
		if !want[t.name] {
			continue
		}
		if err := t.build(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return nil
}

func parse(args []string) (options, error) {
	o := options{Epoch: time.Unix(defaultEpoch, 0).UTC()}
	fs := flag.NewFlagSet("build", flag.ContinueOnError)
	fs.StringVar(&o.Root, "root", ".", "the repository")
	fs.StringVar(&o.Out, "out", "bin/images", "directory for the images")
	fs.StringVar(&o.Cache, "cache", ".cache/images", "directory for Debian packages and finished layers")
	fs.StringVar(&o.Bin, "bin", "bin", "directory with virt-server and virt-launcher, already built")
	fs.StringVar(&o.Registry, "registry", "ghcr.io/virtkit", "prefix of the images' names")
	fs.StringVar(&o.Tag, "tag", "dev", "tag of the images")
	fs.StringVar(&o.Mirrors.Main, "mirror", "",
		"Debian mirror, for example a dated snapshot (default: this machine's apt sources)")
	fs.StringVar(&o.Mirrors.Security, "security-mirror", "",
		"Debian security mirror (default: this machine's apt sources)")
	fs.BoolVar(&o.Refresh, "refresh", false, "fetch Debian's packages again even when nothing here changed")
	fs.Usage = func() {
		fmt.Fprintln(fs.Output(), "usage: go run ./images/build [flags] [virt-server] [virt-launcher] [tiny-disk] "+
			"[debian-disk] [lab] [libguestfs-tools]")
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if v := os.Getenv("SOURCE_DATE_EPOCH"); v != "" {
		s, err := strconv.ParseInt(v, 10, 64)
		if err != nil || s < 315532800 {
			return o, fmt.Errorf("SOURCE_DATE_EPOCH=%s: need seconds since 1970, not before 1980 (FAT knows no "+
				"earlier date)", v)
		}
		o.Epoch = time.Unix(s, 0).UTC()
	}
	o.Targets = fs.Args()
	for _, want := range o.Targets {
		known := false
		for _, t := range targets {
			known = known || t.name == want
		}
		if !known {
			return o, fmt.Errorf("no such image %q: the images are virt-server, virt-launcher, tiny-disk, "+
				"debian-disk, lab and libguestfs-tools", want)
		}
	}
	if len(o.Targets) == 0 {
		for _, t := range targets {
			if !t.asked {
				o.Targets = append(o.Targets, t.name)
			}
		}
	}
	for _, p := range []*string{&o.Out, &o.Cache, &o.Bin} {
		if !filepath.IsAbs(*p) {
			*p = filepath.Join(o.Root, *p)
		}
	}
	if _, err := os.Stat(filepath.Join(o.Root, "images", "launcher")); err != nil {
		return o, fmt.Errorf("%s is not the repository: run this at its top or pass --root: %w", o.Root, err)
	}
	for _, d := range []string{o.Out, o.Cache} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return o, err
		}
	}
	return o, nil
}

// path of a source file of the images.
func (b *build) path(elem ...string) string {
	return filepath.Join(append([]string{b.Root, "images"}, elem...)...)
}
