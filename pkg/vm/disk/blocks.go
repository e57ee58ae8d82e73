package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/domain"
)

const (
	minBlock = 512
	// maxFileBlock is the largest block that a file gives a disk, bytes: network file systems name the size that they
	// like to be read in, up to MiBs, and no guest takes such a sector.
	maxFileBlock = 4096
)

// matchesVolume reports whether a disk is to have the block sizes of what its image is on.
func matchesVolume(d *v1.Disk) bool {
	return d.BlockSize != nil && d.BlockSize.MatchVolume != nil &&
		(d.BlockSize.MatchVolume.Enabled == nil || *d.BlockSize.MatchVolume.Enabled)
}

// blocks reads the block sizes of the device that an image is, or of the file system that it is on.
func blocks(src domain.Source) (domain.Blocks, error) {
	f, err := os.Open(src.Path)
	if err != nil {
		return domain.Blocks{}, fmt.Errorf("open the image: %w", err)
	}
	defer f.Close()
	if !src.Block {
		var s unix.Statfs_t
		if err := unix.Fstatfs(int(f.Fd()), &s); err != nil {
			return domain.Blocks{}, fmt.Errorf("block size of the file system: %w", err)
		}
		size := clampBlock(s.Bsize, maxFileBlock)
		return domain.Blocks{Logical: size, Physical: size, Discard: size}, nil
	}
	logical, err := unix.IoctlGetInt(int(f.Fd()), unix.BLKSSZGET)
	if err != nil {
		return domain.Blocks{}, fmt.Errorf("logical block size of the device: %w", err)
	}
	physical, err := unix.IoctlGetInt(int(f.Fd()), unix.BLKPBSZGET)
	if err != nil {
		return domain.Blocks{}, fmt.Errorf("physical block size of the device: %w", err)
	}
	out := domain.Blocks{
		Logical:  clampBlock(int64(logical), maxQEMUBlock),
		Physical: clampBlock(int64(physical), maxQEMUBlock),
	}
	out.Physical = max(out.Physical, out.Logical)
	out.Discard, err = discardGranularity(f)
	return out, err
}

// maxQEMUBlock is the largest block that QEMU gives a disk, bytes.
const maxQEMUBlock = 2 << 20

// clampBlock makes a size one that QEMU takes: a power of two from 512 to most.
func clampBlock(size, most int64) uint {
	out := int64(minBlock)
	for out*2 <= min(size, most) {
		out *= 2
	}
	return uint(out)
}

// discardGranularity returns the kernel's value for the device, or for the disk that it is a partition of; 0 where
// there is none.
func discardGranularity(f *os.File) (uint, error) {
	var s unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &s); err != nil {
		return 0, fmt.Errorf("look at the device: %w", err)
	}
	dir := fmt.Sprintf("/sys/dev/block/%d:%d/", unix.Major(s.Rdev), unix.Minor(s.Rdev))
	for _, queue := range []string{"queue", "../queue"} {
		text, err := os.ReadFile(dir + queue + "/discard_granularity")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("discard granularity of the device: %w", err)
		}
		n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
		if err != nil {
			return 0, fmt.Errorf("discard granularity of the device: %w", err)
		}
		return uint(n), nil
	}
	return 0, nil
}
