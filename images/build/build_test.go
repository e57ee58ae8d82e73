package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// testBuild has directories of its own and placeholders for the programs.
func testBuild(t *testing.T) *build {
	t.Helper()
	dir := t.TempDir()
	b := &build{log: t.Logf, options: options{
		Root: "../..", Out: filepath.Join(dir, "out"), Cache: filepath.Join(dir, "cache"),
		Bin:      filepath.Join(dir, "bin"),
		Registry: "registry.example/virtkit", Tag: "v1", Epoch: time.Unix(defaultEpoch, 0),
	}}
	for _, d := range []string{b.Out, b.Cache, b.Bin} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"virt-server", "virt-exporter", "virt-launcher"} {
		if err := os.WriteFile(filepath.Join(b.Bin, name), []byte("binary "+name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestServerImage(t *testing.T) {
	b := testBuild(t)
	if err := buildServer(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(b.archive("virt-server"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(img); err != nil {
		t.Error(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != "1001:1001" || config.Config.Entrypoint[0] != "/usr/bin/virt-server" {
		t.Errorf("runs %v as %q", config.Config.Entrypoint, config.Config.User)
	}
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(b.archive("virt-server")) })
	if err != nil {
		t.Fatal(err)
	}
	if tag := manifest[0].RepoTags[0]; tag != "registry.example/virtkit/virt-server:v1" {
		t.Errorf("tag %s", tag)
	}

	// Elsewhere and at another time the same inputs give the same bytes.
	other := testBuild(t)
	old := time.Unix(1e9, 0)
	if err := os.Chtimes(filepath.Join(other.Bin, "virt-server"), old, old); err != nil {
		t.Fatal(err)
	}
	if err := buildServer(context.Background(), other); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(read(t, b.archive("virt-server")), read(t, other.archive("virt-server"))) {
		t.Error("two builds of the same inputs differ")
	}
}

func TestNothingChangedNothingDone(t *testing.T) {
	b := testBuild(t)
	made := 0
	b.log = func(string, ...any) { made++ }
	again := func(want int, why string) {
		t.Helper()
		if err := buildServer(context.Background(), b); err != nil {
			t.Fatal(err)
		}
		if made != want {
			t.Errorf("%s: made %d times, want %d", why, made, want)
		}
	}
	again(1, "first")
	again(1, "nothing changed")
	if err := os.WriteFile(filepath.Join(b.Bin, "virt-server"), []byte("another"), 0o755); err != nil {
		t.Fatal(err)
	}
	again(2, "the binary changed")
	if err := os.WriteFile(filepath.Join(b.Bin, "virt-exporter"), []byte("another"), 0o755); err != nil {
		t.Fatal(err)
	}
	again(3, "the other binary changed")
	b.Tag = "v2"
	again(4, "the tag changed")
	if err := os.Truncate(b.archive("virt-server"), 10); err != nil {
		t.Fatal(err)
	}
	again(5, "the image was damaged")
	b.Refresh = true
	again(6, "asked to refresh")
}

func TestMissingBinary(t *testing.T) {
	b := testBuild(t)
	if err := os.Remove(filepath.Join(b.Bin, "virt-server")); err != nil {
		t.Fatal(err)
	}
	err := buildServer(context.Background(), b)
	if err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("error %v does not say what to do", err)
	}
}

func TestArguments(t *testing.T) {
	t.Chdir("../..")
	t.Setenv("SOURCE_DATE_EPOCH", "")
	cache := t.TempDir()
	common := []string{"--out", t.TempDir(), "--cache", cache}
	o, err := parse(append(common, "--tag", "v3", "tiny-disk"))
	if err != nil || o.Tag != "v3" || len(o.Targets) != 1 || o.Epoch.Unix() != defaultEpoch {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err := parse(common); err != nil || len(o.Targets) != 3 {
		t.Errorf("without targets: %v, %v; want all", o.Targets, err)
	}
	if _, err := parse(append(common, "virt-api")); err == nil || !strings.Contains(err.Error(), "the images are") {
		t.Errorf("unknown image: %v", err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1")
	if _, err := parse(common); err == nil {
		t.Error("a date before 1980 was taken")
	}
}

// The launcher pod's root is read-only, so every place that something is mounted on must be there.
func TestLauncherDirs(t *testing.T) {
	tr := tree{}
	launcherDirs(tr)
	for _, want := range []string{
		"run/virtkit", "run/virtkit-disks", "var/run/kubevirt/container-disks", "tmp", "proc",
	} {
		if _, ok := tr[want]; !ok {
			t.Errorf("%s is missing", want)
		}
	}
	if got := string(tr["etc/passwd"].Data); !strings.Contains(got, "qemu:x:107:107:") {
		t.Errorf("passwd: %s", got)
	}
}

func TestLists(t *testing.T) {
	for _, name := range []string{"../launcher/packages", "../guest/packages", "../guest/kernel"} {
		l, err := readPackages(name)
		if err != nil || l.Suite == "" || len(l.Packages) == 0 {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
	}
	if _, err := readPackages("../guest/modules"); err == nil {
		t.Error("a list without a suite was taken")
	}
}

func TestMBR(t *testing.T) {
	b := mbr([]byte{0xeb, 0x01}, []partition{{partitionESP, partitionStart, 4096}})
	if len(b) != 512 || b[0] != 0xeb || b[510] != 0x55 || b[511] != 0xaa {
		t.Errorf("not a boot record: % x", b)
	}
	e := b[446:]
	if e[0] != 0x80 || e[4] != 0xef || binary.LittleEndian.Uint32(e[8:]) != 2048 ||
		binary.LittleEndian.Uint32(e[12:]) != 4096 {
		t.Errorf("partition % x", e[:16])
	}
}
