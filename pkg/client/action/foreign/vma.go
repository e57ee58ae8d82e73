package foreign

import (
	"bytes"
	"cmp"
	"crypto/md5" //nolint:gosec // as the format has it, against damage alone
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
)

// Proxmox's vzdump writes a VM into an archive, VMA: a header with texts and the names and sizes of devices, and then
// extents. An extent has a header that says of up to 59 clusters of 64 KiB whose they are and which of their 16 blocks
// follow, in this order; the others are zeros. Numbers are big-endian but for the lengths of what the header names.
// https://git.proxmox.com/?p=pve-qemu.git;a=blob;f=vma_spec.txt

const (
	vmaMagic, vmaExtentMagic = "VMA\x00", "VMAE"
	vmaBlock                 = 4 << 10
	vmaBlocks                = 16
	vmaCluster               = vmaBlock * vmaBlocks
	vmaClusters              = 59
	vmaMost                  = 256
	// vmaHeader is what is before the header's texts, vmaExtent the header of an extent, bytes.
	vmaHeader, vmaExtent = 12 << 10, 512
	vmaNames, vmaConfigs = 2044, 2044 + 4*vmaMost
	vmaDevices           = 4096
	// vmaState is the device of a guest's memory, whose clusters are not counted.
	vmaState = "vmstate"
	// maxVMAHeader bounds the header with its texts, bytes.
	maxVMAHeader = 16 << 20
)

// vma is an archive that was looked at.
type vma struct {
	configs map[string][]byte
	devices map[string]*vmaDisk
}

// vmaDisk is a device in an archive. Reading it reads the archive.
type vmaDisk struct {
	whole content
	name  string
	size  int64
	// clusters are those that have a block which is none of zeros, in their order.
	clusters []vmaPart
	// named has a bit for each cluster that the archive names.
	named []uint64
}

// count is how many clusters the device has.
func (d *vmaDisk) count() int64 { return (d.size + vmaCluster - 1) / vmaCluster }

// take notes that the archive names a cluster, and fails when it has before.
func (d *vmaDisk) take(number uint32) error {
	if d.named == nil {
		d.named = make([]uint64, (d.count()+63)/64)
	}
	word, bit := &d.named[number/64], uint64(1)<<(number%64)
	if *word&bit != 0 {
		return fmt.Errorf("the archive is damaged: cluster %d of %s is there twice", number, d.name)
	}
	*word |= bit
	return nil
}

// complete fails unless each cluster was named.
func (d *vmaDisk) complete() error {
	var seen int64
	for _, word := range d.named {
		seen += int64(bits.OnesCount64(word))
	}
	if seen != d.count() {
		return fmt.Errorf("%s has %d of its %d clusters: %w", d.name, seen, d.count(), errCut)
	}
	return nil
}

// vmaPart is a cluster in an archive: where its blocks begin, and which follow.
type vmaPart struct {
	number uint32
	mask   uint16
	at     int64
}

// isVMA reports whether a file begins as an archive of vzdump.
func isVMA(head []byte) bool { return bytes.HasPrefix(head, []byte(vmaMagic)) }

// readVMA reads the headers of an archive.
func readVMA(whole content) (*vma, error) {
	head, err := vmaHead(whole)
	if err != nil {
		return nil, err
	}
	out := &vma{configs: map[string][]byte{}, devices: map[string]*vmaDisk{}}
	var by [vmaMost]*vmaDisk
	for i := range vmaMost {
		info := head[vmaDevices+32*i:]
		name, err := vmaText(head, binary.BigEndian.Uint32(info))
		if err != nil {
			return nil, err
		}
		size := int64(binary.BigEndian.Uint64(info[8:]))
		switch {
		case len(name) == 0 || i == 0:
			continue
		case size < 0 || size > vmaCluster<<32:
			return nil, fmt.Errorf("device %q has %d bytes, which no archive has room for", name, size)
		}
		by[i] = &vmaDisk{whole: whole, name: string(name), size: size}
		// Each cluster has a place in the header of an extent, also one of zeros.
		if most := whole.size / vmaExtent * vmaClusters; by[i].count() > most && by[i].name != vmaState {
			return nil, fmt.Errorf("device %q has %d clusters, and the archive names at most %d: %w", name,
				by[i].count(), most, errCut)
		}
		if out.devices[by[i].name] != nil {
			return nil, fmt.Errorf("device %q is there twice", name)
		}
		out.devices[by[i].name] = by[i]
	}
	for i := range vmaMost {
		name, err := vmaText(head, binary.BigEndian.Uint32(head[vmaNames+4*i:]))
		if err != nil {
			return nil, err
		}
		text, err := vmaText(head, binary.BigEndian.Uint32(head[vmaConfigs+4*i:]))
		if err != nil {
			return nil, err
		}
		if len(name) > 0 {
			out.configs[string(name)] = text
		}
	}
	return out, vmaIndex(whole, head, &by)
}

// vmaHead reads and verifies the header.
func vmaHead(whole content) ([]byte, error) {
	head := make([]byte, vmaHeader)
	if _, err := io.ReadFull(io.NewSectionReader(whole, 0, whole.size), head); err != nil {
		return nil, errCut
	}
	size := binary.BigEndian.Uint32(head[56:])
	switch version := binary.BigEndian.Uint32(head[4:]); {
	case version != 1:
		return nil, fmt.Errorf("the archive is of version %d of VMA, and 1 is read", version)
	case size < vmaHeader || size > maxVMAHeader:
		return nil, fmt.Errorf("the archive is damaged: its header has %d bytes", size)
	}
	head = make([]byte, size)
	if _, err := io.ReadFull(io.NewSectionReader(whole, 0, whole.size), head); err != nil {
		return nil, errCut
	}
	if !vmaVerified(head, 32) {
		return nil, errors.New("the archive is damaged: its header is not as its checksum says")
	}
	return head, nil
}

// vmaVerified compares a header with the MD5 that it has at a place, which counts as zeros.
func vmaVerified(head []byte, at int) bool {
	want := bytes.Clone(head[at : at+md5.Size])
	clear(head[at : at+md5.Size])
	got := md5.Sum(head) //nolint:gosec // against damage alone
	copy(head[at:], want)
	return bytes.Equal(got[:], want)
}

// vmaText returns a text of the header; none for 0. A name ends with a zero.
func vmaText(head []byte, place uint32) ([]byte, error) {
	if place == 0 {
		return nil, nil
	}
	damaged := errors.New("the archive is damaged: a text is outside of its header")
	begin, length := int64(binary.BigEndian.Uint32(head[48:])), int64(binary.BigEndian.Uint32(head[52:]))
	end := begin + length
	at := begin + int64(place)
	if end > int64(len(head)) || at+2 > end {
		return nil, damaged
	}
	size := int64(binary.LittleEndian.Uint16(head[at:]))
	if at+2+size > end {
		return nil, damaged
	}
	return bytes.TrimRight(head[at+2:at+2+size], "\x00"), nil
}

// vmaIndex reads the headers of the extents.
func vmaIndex(whole content, head []byte, by *[vmaMost]*vmaDisk) error {
	extent := make([]byte, vmaExtent)
	for at := int64(len(head)); at < whole.size; {
		if _, err := io.ReadFull(io.NewSectionReader(whole, at, whole.size-at), extent); err != nil {
			return errCut
		}
		if string(extent[:4]) != vmaExtentMagic || !bytes.Equal(extent[8:24], head[8:24]) || !vmaVerified(extent, 24) {
			return fmt.Errorf("the archive is damaged: at byte %d is no extent of it", at)
		}
		at += vmaExtent
		for i := range vmaClusters {
			info := binary.BigEndian.Uint64(extent[40+8*i:])
			device, part := by[byte(info>>32)], vmaPart{number: uint32(info), mask: uint16(info >> 48), at: at}
			if byte(info>>32) == 0 {
				continue
			}
			if device == nil || int64(part.number)*vmaCluster >= device.size && device.name != vmaState {
				return fmt.Errorf("the archive is damaged: cluster %d of device %d is of no device", part.number,
					byte(info>>32))
			}
			at += int64(bits.OnesCount16(part.mask)) * vmaBlock
			if device.name == vmaState {
				continue
			}
			if err := device.take(part.number); err != nil {
				return err
			}
			if part.mask != 0 {
				device.clusters = append(device.clusters, part)
			}
		}
		if at > whole.size {
			return errCut
		}
	}
	for _, device := range by {
		if device == nil || device.name == vmaState {
			continue
		}
		if err := device.complete(); err != nil {
			return err
		}
		device.named = nil
		slices.SortFunc(device.clusters, func(a, b vmaPart) int { return cmp.Compare(a.number, b.number) })
	}
	return nil
}

// ReadAt implements io.ReaderAt.
func (d *vmaDisk) ReadAt(p []byte, offset int64) (int, error) {
	if offset < 0 {
		return 0, errors.New("read before the disk")
	}
	n := 0
	for n < len(p) && offset < d.size {
		in := offset % vmaBlock
		to := p[n:min(int64(len(p)), int64(n)+min(vmaBlock-in, d.size-offset))]
		at, has := d.place(offset - in)
		if !has {
			clear(to)
		} else if _, err := d.whole.ReadAt(to, at+in); err != nil && !errors.Is(err, io.EOF) {
			return n, err
		}
		n, offset = n+len(to), offset+int64(len(to))
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// place returns where the archive has the block at an offset of the disk; false for zeros.
func (d *vmaDisk) place(offset int64) (int64, bool) {
	number, block := uint32(offset/vmaCluster), uint(offset%vmaCluster/vmaBlock)
	i, found := slices.BinarySearchFunc(d.clusters, number, func(p vmaPart, n uint32) int {
		return cmp.Compare(p.number, n)
	})
	if !found || d.clusters[i].mask&(1<<block) == 0 {
		return 0, false
	}
	before := bits.OnesCount16(d.clusters[i].mask & (1<<block - 1))
	return d.clusters[i].at + int64(before)*vmaBlock, true
}
