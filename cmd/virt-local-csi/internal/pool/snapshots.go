package pool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/service/files/loop"
)

// TakeSnapshot makes a snapshot of a volume, or finds it. What was written and flushed before the call is in it, and it
// is of one instant: as a disk that was pulled.
func (p *Pool) TakeSnapshot(ctx context.Context, name, volume string) (Snapshot, error) {
	s := Snapshot{ID: ID(name), Name: name, Volume: volume}
	if old, err := p.Snapshot(s.ID); err == nil {
		if old.Name != name || old.Volume != volume {
			return old, fmt.Errorf("snapshot %q: %w", name, ErrExists)
		}
		return old, nil
	} else if !errors.Is(err, ErrNotFound) {
		return s, err
	}
	unlock, err := p.lock(volumes, volume)
	if err != nil {
		return s, err
	}
	defer unlock()
	v, err := p.Volume(volume)
	if err != nil {
		return s, err
	}
	s.Size, s.FSType, s.Formatted, s.Family = v.Size, v.FSType, v.Formatted, v.Family
	if err := p.still(v); err != nil {
		return s, err
	}
	if err := p.flush(v); err != nil {
		return s, err
	}
	s.Created = p.Now().UTC()
	bytes, err := allocated(p.Image(volume))
	if err != nil {
		return s, err
	}
	if err := p.reserve(bytes, func() error { return p.makeSnapshot(ctx, s) }); err != nil {
		return s, fmt.Errorf("make snapshot %q: %w", name, err)
	}
	return p.Snapshot(s.ID)
}

func (p *Pool) makeSnapshot(ctx context.Context, s Snapshot) error {
	dir, err := p.begin(s.ID)
	if err != nil {
		return err
	}
	if err = p.clone(ctx, p.Image(s.Volume), filepath.Join(dir, "image")); err == nil {
		err = beginRecord(filepath.Join(dir, snapshots.record), s)
	}
	if err == nil {
		err = p.publish(snapshots, s.ID)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	return nil
}

// still returns an error when a volume's image cannot be cloned since it may be written meanwhile.
func (p *Pool) still(v Volume) error {
	if p.Reflinks {
		return nil
	}
	nodes, err := p.attachedNodes(v.ID)
	if err != nil {
		return err
	}
	if len(nodes) > 0 {
		return fmt.Errorf("volume %q on %v: %w, and without reflinks only a volume that is not can be copied: install "+
			"xfsprogs and make the cluster anew", v.ID, nodes, ErrInUse)
	}
	return nil
}

// flush brings what the kernel has not yet written of a volume into its image.
func (p *Pool) flush(v Volume) error {
	devices, err := loop.Devices(p.Image(v.ID))
	if err != nil {
		return err
	}
	for _, device := range devices {
		if v.FSType != "" {
			if err := p.syncMounted(v, device); err != nil {
				return fmt.Errorf("flush volume %q: %w", v.ID, err)
			}
		}
		if err := loop.Flush(device); err != nil {
			return fmt.Errorf("flush volume %q: %w", v.ID, err)
		}
	}
	return nil
}

// syncMounted syncs the file system on a device where nodes have it mounted: mounted once more, here, it is the same.
func (p *Pool) syncMounted(v Volume, device string) (err error) {
	mounted, err := loop.Mounted(device)
	if err != nil || !mounted {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Join(p.Root, syncing), "*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(dir)) }()
	if err := Mount(device, dir, v.FSType, nil); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH)) }()
	root, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return unix.Syncfs(int(root.Fd()))
}

// RemoveSnapshot erases a snapshot. One that is gone is no error. Volumes made from it don't need it.
func (p *Pool) RemoveSnapshot(id string) error {
	unlock, err := p.lock(snapshots, id)
	if errors.Is(err, ErrNotFound) {
		if !plainName.MatchString(id) {
			return nil
		}
		return p.finish(snapshots, id)
	}
	if err != nil {
		return err
	}
	defer unlock()
	return p.finish(snapshots, id)
}
