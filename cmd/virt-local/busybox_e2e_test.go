//go:build e2e

package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const busyboxImage = "docker.io/virt-local/busybox:e2e"

// busybox makes an image archive from the machine's own static busybox.
func busybox(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal("this test needs busybox: apt-get install -y busybox-static")
	}
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	type object = map[string]any
	layer := tarball(t, func(w *tar.Writer) {
		write(t, w, &tar.Header{Name: "bin/busybox", Mode: 0o755}, content)
		for _, applet := range []string{
			"sh", "cat", "echo", "tee", "mkdir", "sleep", "httpd", "nc", "nslookup", "awk", "tail", "test", "dd",
			"sync", "printf", "df",
		} {
			write(t, w, &tar.Header{Name: "bin/" + applet, Typeflag: tar.TypeSymlink, Linkname: "/bin/busybox"}, nil)
		}
	})
	diff := sha256.Sum256(layer)
	config, err := json.Marshal(object{
		"architecture": "amd64", "os": "linux", "config": object{"Env": []string{"PATH=/bin"}},
		"rootfs": object{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(diff[:])}},
	})
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := json.Marshal([]object{
		{"Config": "config.json", "RepoTags": []string{busyboxImage}, "Layers": []string{"layer.tar"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	archive := tarball(t, func(w *tar.Writer) {
		write(t, w, &tar.Header{Name: "manifest.json", Mode: 0o644}, manifest)
		write(t, w, &tar.Header{Name: "config.json", Mode: 0o644}, config)
		write(t, w, &tar.Header{Name: "layer.tar", Mode: 0o644}, layer)
	})
	path := filepath.Join(t.TempDir(), "busybox.tar")
	if err := os.WriteFile(path, archive, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func tarball(t *testing.T, fill func(*tar.Writer)) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	fill(w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func write(t *testing.T, w *tar.Writer, h *tar.Header, content []byte) {
	t.Helper()
	h.Size = int64(len(content))
	if err := w.WriteHeader(h); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
}
