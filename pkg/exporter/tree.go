package exporter

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/virtkit/virtkit/pkg/names"
)

// lost is the directory of a file system that is not its user's.
const lost = "lost+found"

// confined is a file system below a root, of which only directories and regular files are opened. Links lead to what is
// below the root, or nowhere.
type confined struct{ root *os.Root }

// Open implements fs.FS.
func (c confined) Open(name string) (fs.File, error) {
	info, err := c.root.Stat(name)
	switch {
	case err != nil:
		return nil, hidden(name, err)
	case info.IsDir():
		return c.root.Open(name)
	}
	file, err := openRegular(c.root, name)
	if err != nil {
		return nil, hidden(name, err)
	}
	return file, nil
}

// hidden returns an error that net/http answers with 404 or 403.
func hidden(name string, err error) error {
	reason := fs.ErrPermission
	if errors.Is(err, fs.ErrNotExist) {
		reason = fs.ErrNotExist
	}
	return &fs.PathError{Op: "open", Path: name, Err: reason}
}

// serveTree serves files of a claim, and lists of its directories.
func serveTree(w http.ResponseWriter, r *http.Request, volume Volume) error {
	root, err := os.OpenRoot(volume.Path)
	if err != nil {
		return err
	}
	defer root.Close()
	prefix := names.ExportVolumes + volume.Name + "/" + strings.TrimSuffix(names.ExportTree, "/")
	http.StripPrefix(prefix, http.FileServerFS(confined{root})).ServeHTTP(w, r)
	return nil
}

// serveArchive serves all files of a claim as one archive. It looks at all of them before it begins, so that what
// cannot be read is an answer and no archive without it.
func serveArchive(w http.ResponseWriter, r *http.Request, volume Volume) error {
	root, err := os.OpenRoot(volume.Path)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := walk(root, readable); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/gzip")
	if r.Method == http.MethodHead {
		return nil
	}
	packer, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(packer)
	err = walk(root, func(root *os.Root, name string, info fs.FileInfo) error {
		return add(archive, root, name, info)
	})
	if err != nil {
		return err // without an end
	}
	return errors.Join(archive.Close(), packer.Close())
}

// walk visits directories, regular files and links below a root, in order. It follows no link.
func walk(root *os.Root, visit func(*os.Root, string, fs.FileInfo) error) error {
	return fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == lost:
			return fs.SkipDir
		case entry.Type()&^(fs.ModeDir|fs.ModeSymlink) != 0:
			return nil // a socket, a pipe, a device
		}
		info, err := root.Lstat(name)
		if err != nil {
			return err
		}
		return visit(root, name, info)
	})
}

// readable fails for a file that cannot be read.
func readable(root *os.Root, name string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return nil
	}
	file, err := openRegular(root, name)
	if err != nil {
		return fmt.Errorf("the archive would lack a file: %w", err)
	}
	return file.Close()
}

// add writes one file into an archive.
func add(archive *tar.Writer, root *os.Root, name string, info fs.FileInfo) error {
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		var err error
		if target, err = root.Readlink(name); err != nil {
			return err
		}
	}
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	header.Name = name
	if info.IsDir() {
		header.Name += "/"
	}
	header.Uname, header.Gname = "", "" // the pod's words for what are the guest's users
	if err := archive.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
		return err
	}
	file, err := openRegular(root, name)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.CopyN(archive, file, info.Size())
	return err
}
