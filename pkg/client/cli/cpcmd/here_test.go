package cpcmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestWhatIsWrongHere(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	because := func(errno error) error {
		return fmt.Errorf("copy: %w", &fs.PathError{Op: "open", Path: "p", Err: errno})
	}
	below := filepath.Join(file, "x")
	for _, c := range []struct {
		got  error
		want string
	}{
		{unreadable("a", because(syscall.ENOENT)), "a: there is no such file here; a file in a VM is NAME:PATH"},
		{
			unreadable(below, because(syscall.ENOTDIR)),
			below + ": there is no such file here, for " + file + " is not a directory",
		},
		{
			unreadable("a", because(syscall.EACCES)),
			"a may not be read by you (permission denied); let its owner change its mode, or copy it as its owner",
		},
		{unreadable("a", because(syscall.EIO)), "a cannot be read: input/output error"},
		{
			unwritable("n/a", because(syscall.ENOENT)),
			"n/a cannot be written: there is no directory n here; make it first: mkdir -p n",
		},
		{
			unwritable(below, because(syscall.ENOTDIR)),
			below + " cannot be written: " + file + " is not a directory; name another place",
		},
		{
			unwritable("n/a", because(syscall.EACCES)),
			"n/a cannot be written: you may not write in directory n (permission denied); name another place",
		},
		{
			unwritable("n/a", because(syscall.ENOSPC)),
			"n/a cannot be written: there is no space left in n; free some, or name another place",
		},
		{
			unwritable("n/a", because(syscall.EROFS)),
			"n/a cannot be written: directory n is on a read-only file system; name another place",
		},
		{unwritable(dir, because(syscall.EISDIR)), dir + " cannot be written: it is a directory; name a file in it"},
		{
			unwritable("n/a", &os.LinkError{Op: "rename", Old: "x", New: "n/a", Err: syscall.EBUSY}),
			"n/a cannot be written: device or resource busy",
		},
	} {
		var here *hereError
		if !errors.As(c.got, &here) || c.got.Error() != c.want {
			t.Errorf("%v\nwant %s", c.got, c.want)
		}
	}
	other := errors.New("the connection was lost")
	if unreadable("a", other).Error() != other.Error() || unwritable("a", other).Error() != other.Error() ||
		unreadable("a", nil) != nil {
		t.Error("an error that is about no file here is changed")
	}
}
