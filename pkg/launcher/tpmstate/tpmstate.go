// Package tpmstate stores the state of a persistent TPM on a claim. swtpm works in a directory of its pod, so that a
// guest can move without two swtpm in one directory: libvirt migrates the state with the guest. The launcher that has
// the guest copies what swtpm writes to the claim, each time and at once:
//
//	swtpm ─► <local>/tpm2-00.permall ──Save──► <claim>/tpm2-00.permall ──Restore──► the next pod
//
// The file owner on the claim names that launcher. It is locked while it is read and while the state is written, so
// that a launcher that has lost its guest, or was believed dead, changes nothing.
package tpmstate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// File is the state of a TPM 2.0 as swtpm names it.
	File = "tpm2-00.permall"
	// ownerFile has the name of the launcher whose copies count.
	ownerFile = "owner"
	// maxState bounds what is read as a TPM's state, bytes; it is some kilobytes.
	maxState = 1 << 20
	// lockAgain is the pause between attempts to lock, which others do for milliseconds.
	lockAgain = 20 * time.Millisecond
)

// Store is a TPM's two directories.
type Store struct {
	// Claim is the directory on the claim, Local swtpm's. Both are made when they are missing.
	Claim, Local string
	// Former is the pattern of directories on the claim with the state of the same TPM from when its guest had another
	// firmware UUID, as the VM has that a clone was made of; Claim may match, too. Empty means none.
	Former string
	// Owner is this launcher's name, unlike any other's.
	Owner string
}

// Restore makes this launcher the owner and gives swtpm the last state, if there is one. Where Claim has none yet, it
// is the newest of Former; that stays where it is.
func (s Store) Restore(ctx context.Context) error {
	if err := s.makeDirs(); err != nil {
		return err
	}
	return s.locked(ctx, func(owner *os.File) error {
		state, err := read(filepath.Join(s.Claim, File))
		if errors.Is(err, fs.ErrNotExist) {
			state, err = s.former()
		}
		if err == nil {
			err = write(s.Local, state)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return s.own(owner)
	})
}

// former reads the newest state of Former. Without one the error is fs.ErrNotExist.
func (s Store) former() ([]byte, error) {
	if s.Former == "" {
		return nil, fs.ErrNotExist
	}
	found, err := filepath.Glob(filepath.Join(s.Former, File))
	if err != nil {
		return nil, fmt.Errorf("look for the TPM's state of another firmware UUID: %w", err)
	}
	newest, at := "", time.Time{}
	for _, name := range found {
		info, err := os.Lstat(name)
		if err != nil {
			return nil, err
		}
		if info.Mode().IsRegular() && (newest == "" || info.ModTime().After(at)) {
			newest, at = name, info.ModTime()
		}
	}
	if newest == "" {
		return nil, fs.ErrNotExist
	}
	return read(newest)
}

// Expect prepares for a TPM that comes with its guest.
func (s Store) Expect() error { return s.makeDirs() }

// Take makes this launcher, which has the guest now, the owner and copies the state.
func (s Store) Take(ctx context.Context) error {
	if err := s.makeDirs(); err != nil {
		return err
	}
	return s.locked(ctx, func(owner *os.File) error {
		if err := s.own(owner); err != nil {
			return err
		}
		return s.copy()
	})
}

// Save copies the state if this launcher is the owner, and it differs.
func (s Store) Save(ctx context.Context) error {
	return s.locked(ctx, func(owner *os.File) error {
		name, err := io.ReadAll(io.LimitReader(owner, int64(len(s.Owner)+1)))
		if err != nil || string(name) != s.Owner {
			return err
		}
		return s.copy()
	})
}

func (s Store) makeDirs() error {
	return errors.Join(os.MkdirAll(s.Claim, 0o770), os.MkdirAll(s.Local, 0o700))
}

// copy brings the claim up to date. There is nothing to copy before swtpm has made its state.
func (s Store) copy() error {
	state, err := read(filepath.Join(s.Local, File))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if kept, err := read(filepath.Join(s.Claim, File)); err == nil && bytes.Equal(kept, state) {
		return nil
	}
	return write(s.Claim, state)
}

// own writes the owner's name over the one that is there.
func (s Store) own(owner *os.File) error {
	if err := owner.Truncate(0); err != nil {
		return fmt.Errorf("own the TPM's state: %w", err)
	}
	if _, err := owner.WriteAt([]byte(s.Owner), 0); err != nil {
		return fmt.Errorf("own the TPM's state: %w", err)
	}
	return owner.Sync()
}

// locked does something while no other launcher does. File systems without locks get by without.
func (s Store) locked(ctx context.Context, do func(owner *os.File) error) error {
	owner, err := os.OpenFile(filepath.Join(s.Claim, ownerFile), os.O_RDWR|os.O_CREATE, 0o660)
	if err != nil {
		return fmt.Errorf("open the owner of the TPM's state: %w", err)
	}
	defer owner.Close() // and with it the lock
	for {
		err := unix.Flock(int(owner.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil, errors.Is(err, unix.ENOLCK), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP):
			return do(owner)
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("lock the TPM's state: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("lock the TPM's state: %w", ctx.Err())
		case <-time.After(lockAgain):
		}
	}
}

// read reads a state.
func read(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	state, err := io.ReadAll(io.LimitReader(f, maxState+1))
	if err != nil {
		return nil, err
	}
	if len(state) > maxState {
		return nil, fmt.Errorf("%s has more than %d bytes, which is no TPM's state", name, maxState)
	}
	return state, nil
}

// write replaces the state in a directory, so that it is there whole, old or new, whatever fails.
func write(dir string, state []byte) error {
	f, err := os.CreateTemp(dir, "."+File+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(state)
	if err = errors.Join(err, f.Chmod(0o640), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, File))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
