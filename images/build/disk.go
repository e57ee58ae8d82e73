package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const (
	sector = 512
	// partitionStart is where the first partition begins: 1 MiB, as every partitioner does.
	partitionStart = 2048 // sectors
	// partitionESP is the MBR type of an EFI system partition, partitionLinux that of any of Linux' own.
	partitionESP   = 0xef
	partitionLinux = 0x83
	// volumeID and diskID are arbitrary and fixed, because a random one would change the digest.
	volumeID = 0x76697274
	diskID   = 0x6b697431
)

// diskPlan is a disk that boots under BIOS and UEFI alike: an MBR with a FAT partition, which holds the files of
// Boot; syslinux starts from it under BIOS, EFI/BOOT/BOOTX64.EFI under UEFI. The kernel and initramfs are there once,
// for both.
type diskPlan struct {
	// Label of the FAT file system, at most 11 capitals.
	Label string
	Boot  tree
	// Root is a file with what the second partition has; "" is a disk without one.
	Root string
	// Compress what is not compressed already.
	Compress bool
}

// write makes the disk, a qcow2. Everything works on plain files: no loop device, no mount, no root.
func (p diskPlan) write(ctx context.Context, at time.Time, out string) error {
	files := p.Boot
	work, err := os.MkdirTemp("", "virtkit-disk-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	raw := filepath.Join(work, "disk.raw")
	// A quarter more than the files, in MiB; FAT16 needs 16 MiB to be FAT16.
	mib := max(16, files.size()*5/4>>20+2) + 1
	if err := os.WriteFile(raw, nil, 0o644); err != nil {
		return err
	}
	if err := os.Truncate(raw, mib<<20); err != nil {
		return err
	}
	tool := func(name string, args ...string) error {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env = append(os.Environ(),
			fmt.Sprintf("SOURCE_DATE_EPOCH=%d", at.Unix()), "TZ=UTC", "MTOOLS_SKIP_CHECK=1",
			"PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
		return runQuiet(cmd)
	}
	sectors := uint32(mib<<20/sector) - partitionStart
	err = tool("mkfs.vfat", "--offset", fmt.Sprint(partitionStart), "-F", "16", "-n", p.Label, "--invariant",
		"-i", fmt.Sprintf("%08x", volumeID), "-h", fmt.Sprint(partitionStart), raw, fmt.Sprint(sectors/2))
	if err != nil {
		return err
	}
	volume := fmt.Sprintf("%s@@%d", raw, partitionStart*sector)
	for i, name := range files.names() {
		n := files[name]
		if n.Data == nil {
			if err := tool("mmd", "-i", volume, "::/"+name); err != nil {
				return err
			}
			continue
		}
		file := filepath.Join(work, fmt.Sprint(i))
		if err := os.WriteFile(file, n.Data, 0o644); err != nil {
			return err
		}
		if err := os.Chtimes(file, at, at); err != nil {
			return err
		}
		if err := tool("mcopy", "-m", "-i", volume, file, "::/"+name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := tool("syslinux", "--install", "--offset", fmt.Sprint(partitionStart*sector), raw); err != nil {
		return err
	}
	partitions := []partition{{partitionESP, partitionStart, sectors}}
	if p.Root != "" {
		root, err := appendFile(raw, p.Root)
		if err != nil {
			return err
		}
		partitions = append(partitions, root)
	}
	if err := writeMBR(raw, partitions); err != nil {
		return err
	}
	convert := []string{"convert", "-f", "raw", "-O", "qcow2"}
	if p.Compress {
		convert = append(convert, "-c", "-o", "compression_type=zstd")
	}
	return tool("qemu-img", append(convert, raw, out)...)
}

// bootCode starts the active partition's boot sector; package syslinux-common has it.
const bootCode = "/usr/lib/syslinux/mbr/mbr.bin"

// partition is a row of a master boot record, in sectors.
type partition struct {
	kind         byte
	start, count uint32
}

// appendFile adds a partition with a file's content, of which what is all zeros stays a hole.
func appendFile(raw, content string) (partition, error) {
	from, err := os.Open(content)
	if err != nil {
		return partition{}, err
	}
	defer from.Close()
	to, err := os.OpenFile(raw, os.O_WRONLY, 0)
	if err != nil {
		return partition{}, err
	}
	defer to.Close()
	start, err := to.Seek(0, io.SeekEnd)
	if err != nil {
		return partition{}, err
	}
	buffer, zeros := make([]byte, 1<<20), make([]byte, 1<<20)
	size := int64(0)
	for {
		n, err := io.ReadFull(from, buffer)
		if n > 0 && !bytes.Equal(buffer[:n], zeros[:n]) {
			if _, err := to.WriteAt(buffer[:n], start+size); err != nil {
				return partition{}, err
			}
		}
		size += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return partition{}, err
		}
	}
	if err := to.Truncate(start + size); err != nil {
		return partition{}, err
	}
	return partition{partitionLinux, uint32(start / sector), uint32(size / sector)}, to.Close()
}

// writeMBR writes the master boot record: boot code, identity, partitions of which the first is active.
func writeMBR(raw string, partitions []partition) error {
	code, err := os.ReadFile(bootCode)
	if err != nil {
		return fmt.Errorf("%w (make deps installs what is missing)", err)
	}
	if len(code) > 440 {
		return fmt.Errorf("%s is %d bytes long; a master boot record has 440", bootCode, len(code))
	}
	f, err := os.OpenFile(raw, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteAt(mbr(code, partitions), 0); err != nil {
		return err
	}
	return f.Close()
}

func mbr(code []byte, partitions []partition) []byte {
	b := make([]byte, sector)
	copy(b, code)
	binary.LittleEndian.PutUint32(b[440:], diskID)
	for i, p := range partitions {
		entry := b[446+16*i:]
		if i == 0 {
			entry[0] = 0x80 // active
		}
		// The old cylinder numbers say "beyond them"; everyone reads the sector numbers.
		copy(entry[1:4], []byte{0xfe, 0xff, 0xff})
		entry[4] = p.kind
		copy(entry[5:8], []byte{0xfe, 0xff, 0xff})
		binary.LittleEndian.PutUint32(entry[8:], p.start)
		binary.LittleEndian.PutUint32(entry[12:], p.count)
	}
	copy(b[510:], []byte{0x55, 0xaa})
	return b
}
