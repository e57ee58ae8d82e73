package uploader

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// imageOf mounts, as it were, a container image with files in /disk.
func imageOf(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	check(t, os.Mkdir(filepath.Join(dir, "disk"), 0o755))
	for name, content := range files {
		check(t, os.WriteFile(filepath.Join(dir, name), content, 0o644))
	}
	return dir
}

// The disk of a container image becomes that of the claim, without a client.
func TestContainerImage(t *testing.T) {
	data := rawDisk()
	image := converted(t, data, "-O", "qcow2")
	for name, at := range map[string]string{"the only file": "", "by its path": "/boot.qcow2"} {
		t.Run(name, func(t *testing.T) {
			o := options(t, nil)
			o.Image, o.ImagePath = "example.com/disk:1", at
			o.ImageDirectory = imageOf(t, map[string][]byte{"disk/only.qcow2": image, "boot.qcow2": image})
			state := start(t, o).ended()
			if state.Phase != uploads.Succeeded || state.SHA256 != sumOf(image) || state.Format != "qcow2" ||
				state.Received != int64(len(image)) || state.Size != int64(len(image)) {
				t.Fatalf("%+v", state)
			}
			onDisk(t, o.Directory, data)
		})
	}
}

// What is wrong with an image is said by its name, and leaves the claim as it was.
func TestContainerImageRefused(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string][]byte
		path  string
		link  bool
		want  string
	}{
		"empty":     {want: "example.com/disk:1 has 0 files in /disk"},
		"two files": {files: map[string][]byte{"disk/a": {1}, "disk/b": {2}}, want: "has 2 files in /disk"},
		"no such":   {path: "/boot.img", want: "has no file /boot.img"},
		"a link":    {link: true, want: "/disk/link is not a regular file"},
		"no image":  {files: map[string][]byte{"disk/a": nil}, want: "empty"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, nil)
			o.Image, o.ImagePath, o.ImageDirectory = "example.com/disk:1", test.path, imageOf(t, test.files)
			if test.link {
				check(t, os.Symlink("/etc/passwd", filepath.Join(o.ImageDirectory, "disk/link")))
			}
			state := start(t, o).ended()
			if state.Phase != uploads.Failed || !state.Intact || !strings.Contains(state.Message, test.want) {
				t.Errorf("%+v, want %q", state, test.want)
			}
			if left, err := os.ReadDir(o.Directory); err != nil || len(left) > 0 {
				t.Errorf("left on the claim: %v, %v", left, err)
			}
		})
	}
}

// A client may ask how far it is, and cannot send anything.
func TestContainerImageTakesNoBytes(t *testing.T) {
	o := options(t, nil)
	o.ImageDirectory = imageOf(t, map[string][]byte{"disk/only.raw": rawDisk()})
	u, err := begin(o)
	check(t, err)
	if why := u.admit(&sender{session: "aa", done: make(chan struct{})}); !strings.Contains(why, "container image") {
		t.Errorf("admitted: %q", why)
	}
	u.takeImage()
	<-u.ended
	u.close()
	if state := u.now(); state.Phase != uploads.Succeeded {
		t.Errorf("%+v", state)
	}
}
