package imageformat

import "bytes"

// Types of a VHD.
const (
	vhdFixed, vhdDynamic, vhdDifferencing = 2, 3, 4
	// maxBlocks bounds the table of a VHD's blocks, so that it has 64 MiB at most.
	maxBlocks = 16 << 20
)

// vhd reads the footer of a VHD, of which a dynamic one has a copy at its beginning; big endian.
func (f file) vhd() (int64, error) {
	footer, err := f.at(0, sector)
	if err != nil {
		return 0, err
	}
	fixed := !bytes.HasPrefix(footer, []byte("conectix"))
	if fixed {
		if f.size < sector {
			return 0, errShort
		}
		if footer, err = f.at(uint64(f.size)-sector, sector); err != nil {
			return 0, err
		}
		if !bytes.HasPrefix(footer, []byte("conectix")) {
			return 0, corrupt(VHD, "it has no footer")
		}
	}
	var sum uint32
	for i, b := range footer {
		if i < 64 || i >= 68 {
			sum += uint32(b)
		}
	}
	kind := big.Uint32(footer[60:])
	switch {
	case big.Uint32(footer[64:]) != ^sum:
		return 0, corrupt(VHD, "the checksum of its footer is wrong")
	case kind == vhdDifferencing:
		return 0, refused("the VHD is a differencing disk: its parent (a backing file) is not part of it; " +
			"merge the two first")
	case fixed && kind != vhdFixed || !fixed && kind != vhdDynamic:
		return 0, corrupt(VHD, "type %d", kind)
	}
	size, err := virtualSize(VHD, big.Uint64(footer[48:]))
	if err != nil {
		return 0, err
	}
	if fixed {
		if !f.has(0, uint64(size)+sector) {
			return 0, corrupt(VHD, "a disk of %d bytes is not in a file of %d", size, f.size)
		}
		return size, nil
	}
	return size, f.vhdTable(big.Uint64(footer[16:]), size)
}

// vhdTable holds the table of a dynamic disk's blocks against the size of the disk and of the file.
func (f file) vhdTable(at uint64, size int64) error {
	header, err := f.at(at, 1<<10)
	if err != nil {
		return err
	}
	table, entries, block := big.Uint64(header[16:]), big.Uint32(header[28:]), big.Uint32(header[32:])
	switch {
	case !bytes.HasPrefix(header, []byte("cxsparse")):
		return corrupt(VHD, "it has no header of a dynamic disk")
	case block < sector || block > 1<<30 || block&(block-1) != 0:
		return corrupt(VHD, "blocks of %d bytes", block)
	case entries > maxBlocks || uint64(entries)*uint64(block) < uint64(size):
		return corrupt(VHD, "%d blocks for a disk of %d bytes", entries, size)
	case !f.has(table, uint64(entries)*4):
		return corrupt(VHD, "its table is not in the file")
	}
	return nil
}
