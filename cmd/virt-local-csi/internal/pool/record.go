package pool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/virtkit/virtkit/pkg/service/files"
)

// Volume is a volume's record.
type Volume struct {
	ID string `json:"id"`
	// Name is what the caller has called it, the key by which a repeated call finds it.
	Name string `json:"name"`
	// Size is that of the image, bytes.
	Size int64 `json:"size"`
	// FSType is the file system in the image; empty for a block volume.
	FSType string `json:"fsType,omitempty"`
	// Formatted is the size that the file system has in the image; it grows to Size when it is mounted.
	Formatted int64 `json:"formatted,omitempty"`
	// Source is what the volume was made from.
	Source Source `json:"source,omitzero"`
	// Family is the ID of the first volume in the line of sources: those of one family may share blocks.
	Family string `json:"family"`
	// Node is the only node that may use it; empty for all.
	Node string `json:"node,omitempty"`
	// Parameters are those of its class.
	Parameters map[string]string `json:"parameters,omitempty"`
	Created    time.Time         `json:"created"`
}

// Source is a volume or a snapshot; one of the fields is set, or none.
type Source struct {
	Volume   string `json:"volume,omitempty"`
	Snapshot string `json:"snapshot,omitempty"`
}

// Snapshot is a snapshot's record.
type Snapshot struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Volume is the ID of the volume that it is of.
	Volume string `json:"volume"`
	// Size is that of the volume at that moment, bytes.
	Size      int64     `json:"size"`
	FSType    string    `json:"fsType,omitempty"`
	Formatted int64     `json:"formatted,omitempty"`
	Family    string    `json:"family"`
	Created   time.Time `json:"created"`
}

// writeRecord replaces a record at once; it is on the disk when it returns.
func writeRecord(path string, record any) error { return putRecord(path, record, files.ReplaceDurably) }

// beginRecord makes the record of an entry that is yet to be published.
func beginRecord(path string, record any) error { return putRecord(path, record, os.WriteFile) }

func putRecord(path string, record any, put func(string, []byte, fs.FileMode) error) error {
	data, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return err
	}
	return put(path, append(data, '\n'), 0o600)
}

func readRecord(path string, record any) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNotFound
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, record); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// Volume reads a volume's record.
func (p *Pool) Volume(id string) (Volume, error) {
	var v Volume
	if err := p.read(volumes, id, &v); err != nil {
		return v, err
	}
	return v, plausible(volumes, id, v.ID, v.Size, v.Formatted)
}

// Snapshot reads a snapshot's record.
func (p *Pool) Snapshot(id string) (Snapshot, error) {
	var s Snapshot
	if err := p.read(snapshots, id, &s); err != nil {
		return s, err
	}
	return s, plausible(snapshots, id, s.ID, s.Size, s.Formatted)
}

// largest is more than any file system has: sums of sizes do not overflow.
const largest = 1 << 56

// plausible returns an error for a record that is damaged, or is another's.
func plausible(k kind, id, has string, size, formatted int64) error {
	if has != id || size <= 0 || size > largest || formatted < 0 {
		return fmt.Errorf("%s %q: its record %s is damaged (id %q, size %d, formatted %d): restore it, or move its "+
			"directory out of the pool", k.dir, id, k.record, has, size, formatted)
	}
	return nil
}

func (p *Pool) read(k kind, id string, record any) error {
	if !plainName.MatchString(id) {
		return fmt.Errorf("%s %q: %w", k.dir, id, ErrNotFound)
	}
	path := filepath.Join(p.path(k, id), k.record)
	err := readRecord(path, record)
	if errors.Is(err, ErrNotFound) && p.putBack(k, id) == nil {
		err = readRecord(path, record)
	}
	if err != nil {
		return fmt.Errorf("%s %q: %w", k.dir, id, err)
	}
	return nil
}

func (p *Pool) save(v Volume) error {
	if err := writeRecord(filepath.Join(p.path(volumes, v.ID), volumes.record), v); err != nil {
		return fmt.Errorf("record volume %q: %w", v.ID, err)
	}
	return nil
}

// Volumes lists the volumes by ID.
func (p *Pool) Volumes() ([]Volume, error) { return list(p, volumes, p.Volume) }

// Snapshots lists the snapshots by ID.
func (p *Pool) Snapshots() ([]Snapshot, error) { return list(p, snapshots, p.Snapshot) }

func list[T any](p *Pool, k kind, read func(string) (T, error)) ([]T, error) {
	entries, err := os.ReadDir(filepath.Join(p.Root, k.dir))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", k.dir, err)
	}
	all := make([]T, 0, len(entries))
	for _, e := range entries {
		record, err := read(e.Name())
		if errors.Is(err, ErrNotFound) {
			continue // removed this moment
		}
		if err != nil {
			return nil, err
		}
		all = append(all, record)
	}
	return all, nil
}

// Entries lists the volumes and the snapshots, also those that wait to be erased since the removal did not go on: what
// each takes of the disk, by ID.
func (p *Pool) Entries() (volumeBytes, snapshotBytes map[string]int64, err error) {
	volumeBytes, snapshotBytes = map[string]int64{}, map[string]int64{}
	for k, found := range map[kind]map[string]int64{volumes: volumeBytes, snapshots: snapshotBytes} {
		in, err := filepath.Glob(filepath.Join(p.Root, k.dir, "*"))
		if err != nil {
			return nil, nil, fmt.Errorf("list %s: %w", k.dir, err)
		}
		aside, err := filepath.Glob(p.aside(k, "*"))
		if err != nil {
			return nil, nil, fmt.Errorf("list what is to be erased: %w", err)
		}
		for _, dir := range append(in, aside...) {
			bytes, err := allocated(filepath.Join(dir, "image"))
			if err != nil {
				return nil, nil, err
			}
			id := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(dir), k.dir+"."), partly)
			found[id] += bytes
		}
	}
	return volumeBytes, snapshotBytes, nil
}
