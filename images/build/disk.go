package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const (
	sector = 512
	// partitionStart is where the one partition begins: 1 MiB, as every partitioner does.
	partitionStart = 2048 // sectors
	// partitionESP is the MBR type of an EFI system partition.
	partitionESP = 0xef
	// volumeID and diskID are arbitrary and fixed, because a random one would change the digest.
	volumeID = 0x76697274
	diskID   = 0x6b697431
)

// bootDisk makes a disk that boots under BIOS and UEFI alike: an MBR with one FAT partition,
// which holds the files; syslinux starts from it under BIOS, EFI/BOOT/BOOTX64.EFI under UEFI. The
// kernel and initramfs are there once, for both. Everything works on plain files: no loop device, no mount,
// no root.
func bootDisk(ctx context.Context, files tree, at time.Time, out string) error {
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
	err = tool("mkfs.vfat", "--offset", fmt.Sprint(partitionStart), "-F", "16", "-n", "TINY", "--invariant",
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
	if err := writeMBR(raw, sectors); err != nil {
		return err
	}
	return tool("qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, out)
}

// bootCode starts the active partition's boot sector; package syslinux-common has it.
const bootCode = "/usr/lib/syslinux/mbr/mbr.bin"

// writeMBR writes the master boot record: boot code, identity, one active partition.
func writeMBR(raw string, sectors uint32) error {
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
	if _, err := f.WriteAt(mbr(code, sectors), 0); err != nil {
		return err
	}
	return f.Close()
}

func mbr(code []byte, sectors uint32) []byte {
	b := make([]byte, sector)
	copy(b, code)
	binary.LittleEndian.PutUint32(b[440:], diskID)
	entry := b[446:]
	entry[0] = 0x80 // active
	// The old cylinder numbers say "beyond them"; everyone reads the sector numbers.
	copy(entry[1:4], []byte{0xfe, 0xff, 0xff})
	entry[4] = partitionESP
	copy(entry[5:8], []byte{0xfe, 0xff, 0xff})
	binary.LittleEndian.PutUint32(entry[8:], partitionStart)
	binary.LittleEndian.PutUint32(entry[12:], sectors)
	copy(b[510:], []byte{0x55, 0xaa})
	return bytes.Clone(b)
}
