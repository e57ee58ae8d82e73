package provision

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/virtkit/virtkit/pkg/service/files"
)

// aside returns the directory of data that is about to be erased. No volume has its name, since it begins with a dot.
func (d Disk) aside() string { return filepath.Join(d.Dir, ".erase") }

func (d Disk) record(volume string) string { return filepath.Join(d.aside(), volume+".json") }

// SetAside writes the record, and then moves the data beside it: data there has always a record.
func (d Disk) SetAside(volume string, record Record) error {
	if err := os.MkdirAll(d.aside(), 0o700); err != nil {
		return fmt.Errorf("set volume aside: %w", err)
	}
	if err := writeRecord(d.record(volume), record); err != nil {
		return fmt.Errorf("set volume aside: %w", err)
	}
	if err := d.detach(volume); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(d.Dir, volume+".dev")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("set volume aside: %w", err)
	}
	for _, name := range []string{volume, volume + ".img"} {
		if err := move(filepath.Join(d.Dir, name), filepath.Join(d.aside(), name)); err != nil {
			return fmt.Errorf("set volume aside: %w", err)
		}
	}
	return nil
}

// writeRecord makes a record that is on the disk before anything is moved.
func writeRecord(path string, record Record) error {
	data, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return err
	}
	return files.ReplaceDurably(path, append(data, '\n'), 0o600)
}

// move renames what is there, and nothing over anything.
func move(from, to string) error {
	if !exists(from) {
		return nil
	}
	if exists(to) {
		return fmt.Errorf("%s is in the way of %s: look which one is needed, and remove the other by hand", to, from)
	}
	return os.Rename(from, to)
}

// IsAside reports whether a volume has a record.
func (d Disk) IsAside(volume string) (bool, error) {
	_, err := os.Lstat(d.record(volume))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for what is to be erased: %w", err)
	}
	return true, nil
}

// PutBack moves a volume's data to where it was, gives a block volume its loop device again, and removes the record.
func (d Disk) PutBack(volume string) error {
	if aside, err := d.IsAside(volume); err != nil || !aside {
		return err
	}
	for _, name := range []string{volume, volume + ".img"} {
		if err := move(filepath.Join(d.aside(), name), filepath.Join(d.Dir, name)); err != nil {
			return fmt.Errorf("put volume back: %w", err)
		}
	}
	if exists(filepath.Join(d.Dir, volume+".img")) {
		if _, err := d.attach(volume); err != nil {
			return err
		}
	}
	if err := os.Remove(d.record(volume)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("put volume back: %w", err)
	}
	return nil
}

// erasing is the ending of data that is no longer whole, and so is never put back.
const erasing = ".erasing"

// Erase erases what was set aside, and its record last.
func (d Disk) Erase(volume string) error {
	for _, path := range []string{filepath.Join(d.aside(), volume), filepath.Join(d.aside(), volume+".img")} {
		if err := os.RemoveAll(path + erasing); err != nil {
			return fmt.Errorf("erase volume: %w", err)
		}
		if err := move(path, path+erasing); err != nil {
			return fmt.Errorf("erase volume: %w", err)
		}
		if err := os.RemoveAll(path + erasing); err != nil {
			return fmt.Errorf("erase volume: %w", err)
		}
	}
	if err := os.Remove(d.record(volume)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("erase volume: %w", err)
	}
	return nil
}

// Volumes lists the volumes that have data, in their place or set aside.
func (d Disk) Volumes() ([]string, error) {
	var names []string
	for _, dir := range []string{d.Dir, d.aside()} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("list volumes: %w", err)
		}
		for _, e := range entries {
			name, block := strings.CutSuffix(strings.TrimSuffix(e.Name(), erasing), ".img")
			if (block || e.IsDir()) && !strings.HasPrefix(name, ".") && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names, nil
}
