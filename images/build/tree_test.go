package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var epoch = time.Unix(defaultEpoch, 0).UTC()

func TestTarIsCanonical(t *testing.T) {
	// One tree in two orders, with other times, owners by name and a hard link.
	first := makeTar(t, "b/", "a/", "a/x=one", "b/link>../a/x", "b/hard#a/x")
	second := makeTar(t, "./a/", "./a/x=one", "./b/", "./b/hard#./a/x", "./b/link>../a/x")
	want := "a/ 755\na/x 644 one\nb/ 755\nb/hard 644 one\nb/link 777 -> ../a/x\n"
	var all [][]byte
	for _, in := range [][]byte{first, second} {
		tr, err := readTree(bytes.NewReader(in))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := tr.writeTar(&out, epoch); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, listTar(t, out.Bytes())); diff != "" {
			t.Error(diff)
		}
		all = append(all, out.Bytes())
	}
	if !bytes.Equal(all[0], all[1]) {
		t.Error("the same files in another order gave another tar")
	}
}

// makeTar writes entries: "dir/", "file=content", "link>target", "hard#target".
func makeTar(t *testing.T, entries ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for i, e := range entries {
		h := &tar.Header{
			Name: e, Typeflag: tar.TypeDir, Mode: 0o755, Uname: "root", ModTime: time.Unix(int64(i*1000), 0),
		}
		content := ""
		for sep, kind := range map[string]byte{"=": tar.TypeReg, ">": tar.TypeSymlink, "#": tar.TypeLink} {
			if name, rest, ok := strings.Cut(e, sep); ok {
				h.Name, h.Typeflag = name, kind
				if kind == tar.TypeReg {
					content, h.Size, h.Mode = rest, int64(len(rest)), 0o644
				} else {
					h.Linkname, h.Mode = rest, 0o777
				}
			}
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func listTar(t *testing.T, data []byte) string {
	t.Helper()
	var s strings.Builder
	r := tar.NewReader(bytes.NewReader(data))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return s.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(epoch) || h.Uname != "" || h.Uid != 0 {
			t.Errorf("%s: date %v, owner %q %d", h.Name, h.ModTime, h.Uname, h.Uid)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&s, "%s %o", h.Name, h.Mode)
		if len(content) > 0 {
			fmt.Fprintf(&s, " %s", content)
		}
		if h.Linkname != "" {
			fmt.Fprintf(&s, " -> %s", h.Linkname)
		}
		s.WriteByte('\n')
	}
}

func TestReadDirIgnoresUmask(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"plain": 0o600, "run": 0o700} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	tr, err := readDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if tr["plain"].Mode != 0o644 || tr["run"].Mode != 0o755 {
		t.Errorf("modes %o and %o, want 644 and 755", tr["plain"].Mode, tr["run"].Mode)
	}
}

func TestResolve(t *testing.T) {
	tr := tree{}
	tr.symlink("lib64", "usr/lib64")
	tr.symlink("usr/lib64/ld.so", "/usr/lib/real.so")
	tr.file("usr/lib/real.so", 0o755, nil)
	tr.symlink("loop", "loop")
	for name, want := range map[string]string{
		"/lib64/ld.so":    "usr/lib/real.so",
		"usr/lib/real.so": "usr/lib/real.so",
		"loop":            "",
		"missing":         "",
	} {
		got, ok := tr.resolve(name)
		if got != want || ok != (want != "") {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestCPIO(t *testing.T) {
	tr := tree{}
	tr.file("etc/name", 0o600, []byte("tiny\n"))
	tr.symlink("init", "bin/init")
	var out bytes.Buffer
	if err := tr.writeCPIO(&out, time.Unix(0x11, 0)); err != nil {
		t.Fatal(err)
	}
	want :=
		"07070100000001000041ed00000000000000000000000200000011000000000000000000000000000000000000000000000004" +
			"00000000etc\x00\x00\x00" +
			"070701000000020000818000000000000000000000000100000011000000050000000000000000000000000000000000000009" +
			"00000000etc/name\x00\x00tiny\n\x00\x00\x00" +
			"070701000000030000a1ff00000000000000000000000100000011000000080000000000000000000000000000000000000005" +
			"00000000init\x00\x00bin/init" +
			"07070100000000000000000000000000000000000000010000001100000000000000000000000000000000000000000000000b" +
			"00000000TRAILER!!!\x00\x00\x00\x00"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	if out.Len()%4 != 0 {
		t.Error("not padded to four bytes")
	}
}
