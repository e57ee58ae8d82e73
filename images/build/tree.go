package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// node is a file of a tree.
type node struct {
	Mode     int64 // permission bits, setuid and sticky included
	Type     byte  // a tar type flag: TypeReg, TypeDir, TypeSymlink
	Link     string
	UID, GID int
	Data     []byte
}

// tree is a file system in memory: clean paths without a leading slash ("usr/bin/qemu-img") to
// files. Hard links are turned into copies of the file when read; device nodes are left out, since a
// container runtime and devtmpfs make their own.
type tree map[string]node

// readTree reads a tar.
func readTree(r io.Reader) (tree, error) {
	t := tree{}
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if err != nil {
			return nil, err
		}
		name := clean(h.Name)
		n := node{Mode: h.Mode & 0o7777, Type: h.Typeflag, Link: h.Linkname, UID: h.Uid, GID: h.Gid}
		switch h.Typeflag {
		case tar.TypeReg:
			if n.Data, err = io.ReadAll(tr); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		case tar.TypeLink:
			target, ok := t[clean(h.Linkname)]
			if !ok {
				return nil, fmt.Errorf("%s: hard link to %s, which is not there", name, h.Linkname)
			}
			n = target
		case tar.TypeDir, tar.TypeSymlink:
		default:
			continue
		}
		if name != "" {
			t[name] = n
		}
	}
}

// readDir reads a directory of the repository. All belongs to root; of the modes only the
// executable bit counts, as in git, so the umask of a checkout changes nothing.
func readDir(dir string) (tree, error) {
	t := tree{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			t.dir(name, 0o755)
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			t.symlink(name, to)
		default:
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			mode := int64(0o644)
			if info.Mode()&0o100 != 0 {
				mode = 0o755
			}
			t.file(name, mode, data)
		}
		return nil
	})
	return t, err
}

func clean(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

func (t tree) file(name string, mode int64, data []byte) {
	t.parents(name)
	t[clean(name)] = node{Mode: mode, Type: tar.TypeReg, Data: data}
}

func (t tree) dir(name string, mode int64) {
	t.parents(name)
	t[clean(name)] = node{Mode: mode, Type: tar.TypeDir}
}

func (t tree) symlink(name, to string) {
	t.parents(name)
	t[clean(name)] = node{Mode: 0o777, Type: tar.TypeSymlink, Link: to}
}

// parents adds the directories above a name that are missing.
func (t tree) parents(name string) {
	for d := path.Dir(clean(name)); d != "."; d = path.Dir(d) {
		if _, ok := t[d]; ok {
			return
		}
		t[d] = node{Mode: 0o755, Type: tar.TypeDir}
	}
}

// merge puts all of another tree over t.
func (t tree) merge(other tree) {
	for name, n := range other {
		t.parents(name)
		t[name] = n
	}
}

// resolve follows symbolic links and gives the name of the file itself.
func (t tree) resolve(name string) (string, bool) {
	name = clean(name)
	for range 40 {
		n, ok := t[name]
		if ok && n.Type == tar.TypeSymlink {
			name = target(name, n.Link)
			continue
		}
		if ok {
			return name, true
		}
		// Perhaps a directory on the way is a link: lib64 -> usr/lib64.
		moved := false
		for d := path.Dir(name); d != "."; d = path.Dir(d) {
			if n, ok := t[d]; ok && n.Type == tar.TypeSymlink {
				name = path.Join(target(d, n.Link), strings.TrimPrefix(name, d))
				moved = true
				break
			}
		}
		if !moved {
			return "", false
		}
	}
	return "", false
}

// target of a symbolic link at name.
func target(name, link string) string {
	if path.IsAbs(link) {
		return clean(link)
	}
	return clean(path.Join(path.Dir(name), link))
}

// names in order.
func (t tree) names() []string { return slices.Sorted(maps.Keys(t)) }

// size of all files in bytes.
func (t tree) size() (n int64) {
	for _, f := range t {
		n += int64(len(f.Data))
	}
	return n
}

// writeTar writes the tree sorted by name, every entry dated at.
func (t tree) writeTar(w io.Writer, at time.Time) error {
	tw := tar.NewWriter(w)
	for _, name := range t.names() {
		n := t[name]
		h := &tar.Header{
			Name: name, Typeflag: n.Type, Linkname: n.Link, Mode: n.Mode, Uid: n.UID, Gid: n.GID,
			Size: int64(len(n.Data)), ModTime: at, Format: tar.FormatPAX,
		}
		if n.Type == tar.TypeDir {
			h.Name += "/"
		}
		if err := tw.WriteHeader(h); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if _, err := tw.Write(n.Data); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return tw.Close()
}
