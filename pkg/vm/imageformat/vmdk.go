package imageformat

import (
	"bytes"
	"fmt"
	"regexp"
)

const (
	// vmdkDescriptor is the size, bytes, that QEMU reads of a descriptor.
	vmdkDescriptor = 20 * sector
	// vmdkAtEnd stands for the place of a table that is known when the file is complete: the footer says it.
	vmdkAtEnd = 1<<64 - 1
	// vmdkFooter is the distance from the end at which the header is repeated, bytes.
	vmdkFooter = 2 * sector
	// vmdkRedundant is the flag that says that there is a second directory.
	vmdkRedundant = 1 << 1
	// vmdkMostEntries is how many entries of a grain table QEMU takes at most.
	vmdkMostEntries = 512
)

// vmdkHeader is the part of the header of a sparse extent that counts, little endian; VMware's Virtual Disk Format 5.0.
type vmdkHeader struct {
	version, flags, entries                              uint32
	capacity, grain, descriptor, size, redundant, tables uint64 // sectors
}

func (f file) vmdkHeader(at uint64) (vmdkHeader, error) {
	b, err := f.at(at, sector)
	if err != nil {
		return vmdkHeader{}, err
	}
	if string(b[:4]) != "KDMV" {
		return vmdkHeader{}, corrupt(VMDK, "no header where one should be")
	}
	return vmdkHeader{
		version: little.Uint32(b[4:]), flags: little.Uint32(b[8:]), entries: little.Uint32(b[44:]),
		capacity: little.Uint64(b[12:]), grain: little.Uint64(b[20:]), descriptor: little.Uint64(b[28:]),
		size: little.Uint64(b[36:]), redundant: little.Uint64(b[48:]), tables: little.Uint64(b[56:]),
	}, nil
}

func (f file) vmdk() (int64, error) {
	header, err := f.vmdkHeader(0)
	if err != nil {
		return 0, err
	}
	last := header
	if header.tables == vmdkAtEnd {
		if f.size < vmdkFooter {
			return 0, errShort
		}
		if err := f.vmdkCheck(header); err != nil {
			return 0, err // before the end is there
		}
		if last, err = f.vmdkHeader(uint64(f.size) - vmdkFooter); err != nil {
			return 0, err
		}
		if last.capacity != header.capacity || last.tables == vmdkAtEnd || last.grain != header.grain {
			return 0, corrupt(VMDK, "its footer says something else than its header")
		}
	}
	if err := f.vmdkCheck(last); err != nil {
		return 0, err
	}
	directories := []uint64{last.tables}
	if last.flags&vmdkRedundant != 0 {
		directories = append(directories, last.redundant)
	}
	for _, at := range directories {
		if at > 1<<50 || !f.has(at*sector, last.directory()) {
			return 0, corrupt(VMDK, "its directory is not in the file")
		}
	}
	return virtualSize(VMDK, header.capacity*sector)
}

// directory is the size of a directory, bytes: 4 for each grain table.
func (h vmdkHeader) directory() uint64 {
	table := h.grain * uint64(h.entries)
	return (h.capacity + table - 1) / table * 4
}

// vmdkCheck refuses a header of a disk that is not in the file, or not only.
func (f file) vmdkCheck(h vmdkHeader) error {
	switch {
	case h.capacity == 0: // QEMU takes the descriptor for that of other files then
		return f.vmdkElsewhere(h)
	case h.version < 1 || h.version > 3:
		return corrupt(VMDK, "version %d", h.version)
	case h.capacity > 1<<50 || h.descriptor > 1<<50:
		return corrupt(VMDK, "a disk of %d sectors", h.capacity)
	case h.grain == 0 || h.grain > 1<<16 || h.grain&(h.grain-1) != 0:
		return corrupt(VMDK, "grains of %d sectors", h.grain)
	case h.entries == 0 || h.entries > vmdkMostEntries:
		return corrupt(VMDK, "grain tables of %d entries", h.entries)
	case h.descriptor == 0:
		return nil
	}
	text, err := f.atMost(h.descriptor*sector, vmdkDescriptor)
	if err != nil {
		return err
	}
	return checkDescriptor(text)
}

// vmdkElsewhere refuses an image whose header says that it has no data of its own.
func (f file) vmdkElsewhere(h vmdkHeader) error {
	if h.descriptor == 0 || h.descriptor > 1<<50 {
		return extentsElsewhere(nil)
	}
	text, err := f.atMost(h.descriptor*sector, vmdkDescriptor)
	if err != nil {
		return extentsElsewhere(nil) // the refusal names no file then
	}
	return extentsElsewhere(text)
}

// extentsElsewhere refuses an image whose descriptor names other files.
func extentsElsewhere(descriptor []byte) error {
	return refused("the image is the descriptor of a VMDK whose data (extents) is in other files%s: "+
		"convert it into one file first, with qemu-img convert -O qcow2", foreignExtent(descriptor))
}

// foreignExtent returns the name of the first file that a descriptor names, in brackets, or "".
func foreignExtent(descriptor []byte) string {
	if match := vmdkExtent.FindSubmatch(descriptor); match != nil && len(match[2]) > 0 {
		return fmt.Sprintf(" (%.80q)", match[2])
	}
	return ""
}

// atMost reads n bytes at an offset, or as many as there are.
func (f file) atMost(offset uint64, n int) ([]byte, error) {
	if left := f.size - int64(min(offset, uint64(f.size))); left < int64(n) {
		n = int(left)
	}
	if n == 0 {
		return nil, errShort
	}
	return f.at(offset, n)
}

var (
	vmdkParent = regexp.MustCompile(`(?i)parentFileNameHint`)
	vmdkCID    = regexp.MustCompile(`(?i)parentCID\s*=\s*([0-9a-f]+)`)
	vmdkType   = regexp.MustCompile(`(?i)createType\s*=\s*"([^"]*)"`)
	vmdkExtent = regexp.MustCompile(`(?mi)^\s*(?:RW|RDONLY|NOACCESS)\s+\d+\s+(\w+)(?:\s+"([^"\n]*)")?`)
)

// checkDescriptor refuses a descriptor that names other files.
func checkDescriptor(text []byte) error {
	if vmdkParent.Match(text) {
		return errParent
	}
	for _, match := range vmdkCID.FindAllSubmatch(text, -1) {
		if !bytes.EqualFold(match[1], []byte("ffffffff")) {
			return errParent
		}
	}
	for _, match := range vmdkType.FindAllSubmatch(text, -1) {
		if kind := string(match[1]); kind != "monolithicSparse" && kind != "streamOptimized" {
			return refused("the VMDK is of type %.40q, whose data (extents) is in other files%s: "+
				"convert it into one file first, with qemu-img convert -O qcow2", kind, foreignExtent(text))
		}
	}
	extents := vmdkExtent.FindAllSubmatch(text, -1)
	if len(extents) > 1 || len(extents) == 1 && !bytes.EqualFold(extents[0][1], []byte("SPARSE")) {
		return extentsElsewhere(text)
	}
	return nil
}

var errParent = &RefusedError{"the VMDK has a parent (a backing file), which is not part of it: " +
	"merge the two first, with qemu-img convert -O qcow2"}
