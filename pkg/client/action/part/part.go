// Package part is a file that is written beside the one that is wanted until all is there, and that another run can go
// on with when the one before was killed or cut short:
//
//	.FILE.part       what has come
//	.FILE.part.json  what the writer has noted of it; not there for what nobody can go on with
//
// One program at a time has them: it holds a lock on .FILE.part, which ends with it, also when it is killed.
package part

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// ErrBusy is a file that another program is writing.
var ErrBusy = errors.New("another program is writing it")

// File is a file that is not whole yet. Its holder writes to it by the methods of os.File.
type File struct {
	*os.File
	path   string
	closed bool
}

// beside returns the name of the file that is written for path.
func beside(path string) string {
	directory, name := filepath.Split(filepath.Clean(path))
	return filepath.Join(directory, "."+name+".part")
}

// Open opens what is written for path, or makes it with these permissions: beside its Target, if it is a link. What a
// run before has left is in it. Errors: ErrBusy, and those of os.OpenFile.
func Open(path string, permissions os.FileMode) (*File, error) {
	const tries = 10 // another has finished or discarded it meanwhile
	path, err := Target(path)
	if err != nil {
		return nil, err
	}
	name := beside(path)
	for range tries {
		file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|noFollow, permissions)
		if err != nil {
			return nil, err
		}
		err = errors.Join(check(file), lock(file))
		if errors.Is(err, ErrBusy) {
			err = fmt.Errorf("%s: %w", name, ErrBusy)
		}
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		mine, err := file.Stat()
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		if there, err := os.Lstat(name); err == nil && os.SameFile(there, mine) {
			return &File{File: file, path: filepath.Clean(path)}, nil
		}
		if err := file.Close(); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s: %w", name, ErrBusy)
}

// check refuses a file that is not one of this package: in a directory that others may write to, they choose what is
// there.
func check(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || !own(info) {
		return fmt.Errorf("%s is somebody else's, or no regular file; remove it", file.Name())
	}
	return nil
}

func (f *File) note() string { return f.Name() + ".json" }

// Noted reads what a run before has noted. It reports false when there is nothing, or nothing that can be read.
func (f *File) Noted(into any) bool {
	data, err := os.ReadFile(f.note())
	return err == nil && json.Unmarshal(data, into) == nil
}

// Note notes what another run needs to go on. What was written so far is on the disk before the note is.
func (f *File) Note(what any) error {
	data, err := json.Marshal(what)
	if err != nil {
		return fmt.Errorf("note how far %s is: %w", f.path, err)
	}
	temporary := f.note() + ".new"
	err = errors.Join(f.Sync(), remove(temporary))
	if err == nil {
		err = write(temporary, data)
	}
	if err == nil {
		err = os.Rename(temporary, f.note())
	}
	if err != nil { // as on a disk that is full: the note before stays
		return errors.Join(fmt.Errorf("note how far %s is: %w", f.path, err), remove(temporary))
	}
	return nil
}

// write writes a new file that only its owner reads, and has it on the disk.
func write(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Sync(), file.Close())
}

// Forget removes the note: nobody is to go on with the file.
func (f *File) Forget() error { return remove(f.note()) }

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Finish gives the file its name. When that fails it is removed.
func (f *File) Finish() error {
	if err := errors.Join(f.Sync(), f.Forget()); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", f.path, err), f.Discard())
	}
	err := f.end(func() error { return os.Rename(f.Name(), f.path) })
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", f.path, err), remove(f.Name()))
	}
	return nil
}

// Discard removes what was written, and the note.
func (f *File) Discard() error {
	if f.closed {
		return nil
	}
	return errors.Join(f.Forget(), f.end(func() error { return remove(f.Name()) }))
}

// Leave leaves what was written for another run.
func (f *File) Leave() error {
	if f.closed {
		return nil
	}
	return f.end(func() error { return nil })
}

// end does the last of a file, and lets go of it. What is done is done under the lock where the system can.
func (f *File) end(do func() error) error {
	f.closed = true
	if runtime.GOOS == "windows" { // no open file gets another name there
		if err := f.Close(); err != nil {
			return err
		}
		return do()
	}
	err := do()
	return errors.Join(err, f.Close())
}
