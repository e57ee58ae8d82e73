// Package files replaces files whole: a program that is killed, or a reader, finds the old content or the new one, and
// never a part. The package loop, below it, attaches files to the kernel's loop devices.
//
// Replace writes to PATH.new and renames that, so the caller keeps two from replacing one file at once. What may be
// replaced by several at once goes through a name of its own instead (os.CreateTemp).
package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace replaces the content of a file, or makes it. The kernel writes it to the disk when it likes.
func Replace(path string, content []byte, mode fs.FileMode) error {
	if err := os.WriteFile(path+".new", content, mode); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// ReplaceDurably replaces a file as Replace does, and returns once it is on the disk: it survives the machine's crash.
func ReplaceDurably(path string, content []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return Sync(filepath.Dir(path))
}

// Sync writes a file to the disk, or which names a directory has.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
