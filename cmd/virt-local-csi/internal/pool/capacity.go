package pool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Overheads of file systems that no image accounts for: what is left alone of the disk, and the part of what was
// promised that metadata may need on top.
const (
	spare        = 256 << 20
	metadataPart = 64
)

// holding is what an entry may take of the pool, and takes now.
type holding struct {
	family              string
	promised, allocated int64
}

// outstanding returns what entries may still come to take when everything is written that they promise, bytes. Those of
// one family may share all blocks, so only what the largest of them has counts as taken.
func outstanding(holdings []holding) int64 {
	taken := map[string]int64{}
	var promised int64
	for _, h := range holdings {
		promised += h.promised
		taken[h.family] = max(taken[h.family], min(h.allocated, h.promised))
	}
	for _, bytes := range taken {
		promised -= bytes
	}
	return promised
}

// room returns what new volumes may have, given the free bytes of the disk.
func room(free, outstanding int64) int64 {
	return max(0, free-outstanding-outstanding/metadataPart-spare)
}

// Available returns the room for new volumes, bytes: what is free and not promised to those that are there. So a volume
// that was made never finds the pool full.
func (p *Pool) Available() (int64, error) {
	all, err := p.holdings()
	if err != nil {
		return 0, err
	}
	free, err := freeBytes(p.Root)
	if err != nil {
		return 0, err
	}
	if p.host != "" {
		host, err := freeBytes(p.host)
		if err != nil {
			return 0, err
		}
		free = min(free, host)
	}
	return room(free, outstanding(all)), nil
}

func (p *Pool) holdings() ([]holding, error) {
	vs, err := p.Volumes()
	if err != nil {
		return nil, err
	}
	ss, err := p.Snapshots()
	if err != nil {
		return nil, err
	}
	all := make([]holding, 0, len(vs)+len(ss))
	for _, v := range vs {
		bytes, err := allocated(p.Image(v.ID))
		if err != nil {
			return nil, err
		}
		all = append(all, holding{v.Family, v.Size, bytes})
	}
	for _, s := range ss {
		bytes, err := allocated(filepath.Join(p.path(snapshots, s.ID), "image"))
		if err != nil {
			return nil, err
		}
		// A snapshot is never written: it takes what it has, should its volume come to share nothing with it.
		all = append(all, holding{s.Family, bytes, bytes})
	}
	return all, nil
}

// reserve runs make if there is room for size more bytes; nobody else takes that room meanwhile. For a moment at the
// end what was made counts twice.
func (p *Pool) reserve(size int64, make func() error) error {
	if err := p.promise(size); err != nil {
		return err
	}
	defer p.forget(size)
	err := make()
	if errors.Is(err, unix.ENOSPC) {
		err = fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}

// promise takes room for what is about to be made, and forget gives it back once that is made and has its own.
func (p *Pool) promise(size int64) error {
	p.room.Lock()
	defer p.room.Unlock()
	available, err := p.Available()
	if err != nil {
		return err
	}
	if left := available - p.pending; size > left {
		return fmt.Errorf("%w for %d bytes: %d are available beside what was promised to other volumes", ErrFull, size,
			max(left, 0))
	}
	p.pending += size
	return nil
}

func (p *Pool) forget(size int64) {
	p.room.Lock()
	defer p.room.Unlock()
	p.pending -= size
}

func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("measure the pool: %w", &fs.PathError{Op: "statfs", Path: dir, Err: err})
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// allocated returns what a file takes on the disk, bytes; nothing once it is gone.
func allocated(path string) (int64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); errors.Is(err, os.ErrNotExist) {
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("measure the pool: %w", &fs.PathError{Op: "stat", Path: path, Err: err})
	}
	return st.Blocks * 512, nil
}
