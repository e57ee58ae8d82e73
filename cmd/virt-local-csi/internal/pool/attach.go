package pool

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/service/files/loop"
)

// attachment says that a node uses a volume.
type attachment struct {
	Node string `json:"node"`
	// Init is the node's first process: when that has ended the node has died, whatever it was about.
	Init process `json:"init"`
}

func (p *Pool) nodesFile(id string) string { return filepath.Join(p.path(volumes, id), "nodes.json") }

func (p *Pool) attachments(id string) ([]attachment, error) {
	var all []attachment
	if err := readRecord(p.nodesFile(id), &all); err != nil && !errors.Is(err, ErrNotFound) {
		return nil, fmt.Errorf("read where volume %q is attached: %w", id, err)
	}
	return all, nil
}

// attachedNodes returns the nodes that use a volume, without those that have died.
func (p *Pool) attachedNodes(id string) ([]string, error) {
	all, err := p.attachments(id)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	inits := make([]process, len(all))
	for i, a := range all {
		inits[i] = a.Init
	}
	alive, err := living(inits)
	if err != nil {
		return nil, fmt.Errorf("find out which nodes live: %w", err)
	}
	var nodes []string
	for _, a := range all {
		if alive[a.Init] {
			nodes = append(nodes, a.Node)
		}
	}
	return nodes, nil
}

// Attach gives a volume its loop device, and records that node uses it.
func (p *Pool) Attach(id, node string) (v Volume, device string, err error) {
	unlock, err := p.lock(volumes, id)
	if err != nil {
		return v, "", err
	}
	defer unlock()
	if v, err = p.Volume(id); err != nil {
		return v, "", err
	}
	all, err := p.attachments(id)
	if err != nil {
		return v, "", err
	}
	init, err := ownInit()
	if err != nil {
		return v, "", err
	}
	if mine := (attachment{node, init}); !slices.Contains(all, mine) {
		all = slices.DeleteFunc(all, func(a attachment) bool { return a.Node == node })
		if err := writeRecord(p.nodesFile(id), append(all, mine)); err != nil {
			return v, "", fmt.Errorf("record where volume %q is attached: %w", id, err)
		}
	}
	device, open, err := loop.Attach(p.Image(id), loop.Options{SectorSize: sectorSize})
	if err != nil {
		return v, "", err
	}
	return v, device, unix.Close(open)
}

// Detach records that node no longer uses a volume, and takes its device away when nobody does.
func (p *Pool) Detach(id, node string) error {
	unlock, err := p.lock(volumes, id)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	all, err := p.attachments(id)
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(slices.Clone(all), func(a attachment) bool { return a.Node == node })
	if len(left) < len(all) {
		if err := writeRecord(p.nodesFile(id), left); err != nil {
			return fmt.Errorf("record where volume %q is attached: %w", id, err)
		}
	}
	if len(left) > 0 {
		return nil
	}
	return p.detach(id)
}

// detach takes a volume's device away.
func (p *Pool) detach(id string) error {
	devices, err := loop.Devices(p.Image(id))
	for _, device := range devices {
		err = errors.Join(err, loop.Detach(device))
	}
	return err
}

// Resize makes the file system of a volume on a device as large as the volume. Before it is mounted, path is empty and
// what can only grow while it is mounted is left as it is.
func (p *Pool) Resize(id, device, path string) error {
	unlock, err := p.lock(volumes, id)
	if err != nil {
		return err
	}
	defer unlock()
	v, err := p.Volume(id)
	if err != nil || v.FSType == "" || v.Formatted >= v.Size || v.FSType == "xfs" && path == "" {
		return err
	}
	if err := loop.Grow(device); err != nil {
		return err
	}
	if err := resize(v.FSType, device, path); err != nil {
		return fmt.Errorf("grow the file system of volume %q: %w", id, err)
	}
	v.Formatted = v.Size
	return p.save(v)
}

func resize(fsType, device, path string) error {
	if fsType == "xfs" {
		return run("xfs_growfs", path)
	}
	mounted, err := loop.Mounted(device)
	if err != nil {
		return err
	}
	if !mounted {
		// resize2fs wants that; what a kill has left it fixes.
		if err := run("e2fsck", "-f", "-p", device); err != nil && !repaired(err) {
			return err
		}
		return run("resize2fs", device)
	}
	if err := run("resize2fs", device); err != nil {
		return fmt.Errorf("%w\nThe kernel grows a mounted ext4 for root with CAP_SYS_RESOURCE only: end the pods that "+
			"use it, or use a class with fsType xfs", err)
	}
	return nil
}

// repaired reports whether e2fsck has said that it found something and repaired it.
func repaired(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.ExitCode() == 1
}

// Mount mounts a volume's file system with the flags that a claim or a class may ask for.
func Mount(device, path, fsType string, options []string) error {
	flags, data := mountFlags(options)
	if fsType == "xfs" {
		data = append(data, "nouuid") // a clone has its source's
	}
	if err := unix.Mount(device, path, fsType, flags, strings.Join(data, ",")); err != nil {
		return fmt.Errorf("mount %s on %s: %w", device, path, err)
	}
	return nil
}

// mountFlags splits mount options into those of the kernel's interface and those of the file system.
func mountFlags(options []string) (flags uintptr, data []string) {
	known := map[string]uintptr{
		"ro": unix.MS_RDONLY, "nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC,
		"sync": unix.MS_SYNCHRONOUS, "dirsync": unix.MS_DIRSYNC, "noatime": unix.MS_NOATIME,
		"nodiratime": unix.MS_NODIRATIME, "relatime": unix.MS_RELATIME, "strictatime": unix.MS_STRICTATIME,
		"rw": 0, "defaults": 0,
	}
	for _, o := range options {
		if flag, ok := known[o]; ok {
			flags |= flag
		} else if o != "" {
			data = append(data, o)
		}
	}
	return flags, data
}
