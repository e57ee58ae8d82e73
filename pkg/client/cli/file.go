package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/virtkit/virtkit/pkg/client/action/part"
)

// MaxFile is the most that the file of one object has, bytes: the server takes no more.
const MaxFile = 3 << 20

// ReadFile reads the file that a flag, such as "--file", or an argument, "", names; "-" is stdin. tooLarge ends the
// message about one that has more than MaxFile bytes.
func ReadFile(stdin io.Reader, flag, path, tooLarge string) ([]byte, error) {
	file, err := OpenFile(stdin, flag, path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, MaxFile+1))
	if err != nil {
		return nil, Unreadable(flag, path, err)
	}
	if len(data) > MaxFile {
		return nil, UsageErrorf("%s%s has more than %d bytes%s", before(flag), path, MaxFile, tooLarge)
	}
	return data, nil
}

// OpenFile opens the file that a flag, such as "--file", or an argument, "", names; "-" is stdin. One that cannot be
// read is a UsageError.
func OpenFile(stdin io.Reader, flag, path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(stdin), nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, Unreadable(flag, path, err)
	}
	if info, err := file.Stat(); err == nil && info.IsDir() {
		file.Close()
		return nil, Unreadable(flag, path, syscall.EISDIR)
	}
	return file, nil
}

// Unreadable returns the UsageError about a file that a flag or an argument, "", names and that cannot be read.
func Unreadable(flag, path string, err error) error {
	return UsageErrorf("%s%s", before(flag), WhyUnreadable(path, err))
}

func before(flag string) string {
	if flag == "" {
		return ""
	}
	return flag + ": "
}

// WhyUnreadable returns in a sentence why a file of this machine cannot be read.
func WhyUnreadable(path string, err error) string {
	reason := err
	var of *fs.PathError
	if errors.As(err, &of) {
		reason = of.Err
	}
	if path == "-" {
		path = "stdin"
	}
	switch {
	case path == "":
		return "it names no file"
	case errors.Is(reason, fs.ErrNotExist):
		return path + ": there is no such file here"
	case errors.Is(reason, syscall.ENOTDIR):
		return fmt.Sprintf("%s: there is no such file here, for %s is not a directory", path, FileAbove(path))
	case errors.Is(reason, fs.ErrPermission):
		return path + " may not be read by you (permission denied)"
	case errors.Is(reason, syscall.EISDIR):
		return path + " is a directory; name a file"
	}
	return fmt.Sprintf("%s cannot be read: %v", path, reason)
}

// WhyUnwritable says in a sentence why a file of this machine cannot be written.
func WhyUnwritable(path string, err error) string {
	reason := err
	var of *fs.PathError
	if errors.As(err, &of) {
		reason = of.Err
	}
	dir := filepath.Dir(path)
	info, statErr := os.Stat(path)
	why := reason.Error()
	switch {
	case statErr == nil && info.IsDir():
		why = "it is a directory; name a file in it"
	case errors.Is(reason, fs.ErrNotExist):
		why = fmt.Sprintf("there is no directory %s here; make it first: mkdir -p %[1]s", dir)
	case errors.Is(reason, syscall.ENOTDIR):
		why = FileAbove(path) + " is not a directory; name another place"
	case errors.Is(reason, fs.ErrPermission):
		why = fmt.Sprintf("you may not write in directory %s (permission denied); name another place", dir)
	case errors.Is(reason, syscall.ENOSPC), errors.Is(reason, syscall.EDQUOT):
		why = fmt.Sprintf("there is no space left in %s; free some, or name another place", dir)
	case errors.Is(reason, syscall.EROFS):
		why = fmt.Sprintf("directory %s is on a read-only file system; name another place", dir)
	}
	return path + " cannot be written: " + why
}

// CheckOutput reports a path of a flag that cannot be written, and touches nothing that is there. A path of no regular
// file is taken to be a device, which need not be opened twice.
func CheckOutput(flag, path string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return UsageErrorf("%s: %s is a directory; name a file in it", flag, path)
	case err == nil && !info.Mode().IsRegular():
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return UsageErrorf("%s: %s", flag, WhyUnwritable(path, err))
	}
	target, err := part.Target(path)
	if err != nil {
		return UsageErrorf("%s: %s", flag, WhyUnwritable(path, err))
	}
	probe, err := os.CreateTemp(filepath.Dir(target), ".virtctl-*")
	if err != nil {
		return UsageErrorf("%s: %s", flag, WhyUnwritable(target, err))
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// FileAbove returns the part of a path that should be a directory and is a file.
func FileAbove(name string) string {
	for dir := filepath.Dir(name); ; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && !info.IsDir() {
			return dir
		}
		if dir == filepath.Dir(dir) || dir == "." {
			return filepath.Dir(name)
		}
	}
}
