package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// Formats of disk images.
const (
	FormatRaw   = "raw"
	FormatQcow2 = "qcow2"
)

// Header holds the fields at the start of an image.
type Header struct {
	// Format is raw or qcow2.
	Format string
	// Size is the size of the disk that the guest sees, bytes, a multiple of 512.
	Size int64
}

const sectorSize = 512

// foreign are the magic numbers of image formats that are not run, by the name to show.
var foreign = []struct {
	magic  string
	offset int
	name   string
}{
	{"KDMV", 0, "VMDK"},
	{"COWD", 0, "VMDK"},
	{"# Disk DescriptorFile", 0, "VMDK"},
	{"vhdxfile", 0, "VHDX"},
	{"conectix", 0, "VHD"},
	{"QED\x00", 0, "QED"},
	{"<<< ", 0, "VDI"},
	{"WithoutFreeSpace", 0, "Parallels"},
	{"LUKS\xba\xbe", 0, "LUKS"},
	{"\x1f\x8b", 0, "gzip"},
	{"\xfd7zXZ\x00", 0, "xz"},
	{"\x28\xb5\x2f\xfd", 0, "zstd"},
	{"PK\x03\x04", 0, "zip"},
}

// ReadHeader detects the format of an image of size bytes by its first bytes. The image is not trusted, so what would
// make QEMU open other files is refused: a qcow2 image with a backing file or an external data file. So are formats
// that would boot as garbage when taken for raw.
func ReadHeader(r io.ReaderAt, size int64) (Header, error) {
	buf := make([]byte, 512)
	n, err := r.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return Header{}, fmt.Errorf("read the image's header: %w", err)
	}
	buf = buf[:n]
	if n >= 4 && string(buf[:4]) == "QFI\xfb" {
		return qcow2Header(buf)
	}
	for _, f := range foreign {
		if len(buf) >= f.offset+len(f.magic) && string(buf[f.offset:f.offset+len(f.magic)]) == f.magic {
			return Header{}, invalidf("the image is %s, which is not supported; convert it to qcow2 or raw (qemu-img "+
				"convert -O qcow2)", f.name)
		}
	}
	if size <= 0 {
		return Header{}, invalidf("the image is empty")
	}
	return Header{Format: FormatRaw, Size: roundUp(size, sectorSize)}, nil
}

// qcow2Header reads a qcow2 header; the offsets are from QEMU's docs/interop/qcow2.txt.
func qcow2Header(b []byte) (Header, error) {
	if len(b) < 72 {
		return Header{}, invalidf("the qcow2 image is cut off")
	}
	version := binary.BigEndian.Uint32(b[4:])
	if version != 2 && version != 3 {
		return Header{}, invalidf("the image is qcow version %d; versions 2 and 3 are supported (qemu-img convert -O "+
			"qcow2)", version)
	}
	if binary.BigEndian.Uint64(b[8:]) != 0 {
		return Header{},
			invalidf("the qcow2 image has a backing file of its own; flatten it (qemu-img convert -O qcow2)")
	}
	if bits := binary.BigEndian.Uint32(b[20:]); bits < 9 || bits > 21 {
		return Header{}, invalidf("the qcow2 image has clusters of 2^%d bytes; it is broken", bits)
	}
	if binary.BigEndian.Uint32(b[32:]) != 0 {
		return Header{}, invalidf("the qcow2 image is encrypted, which is not supported")
	}
	const corrupt, dataFile = 1 << 1, 1 << 2
	if version == 3 {
		if len(b) < 104 {
			return Header{}, invalidf("the qcow2 image is cut off")
		}
		incompatible := binary.BigEndian.Uint64(b[72:])
		if incompatible&dataFile != 0 {
			return Header{},
				invalidf("the qcow2 image keeps its data in another file; flatten it (qemu-img convert -O qcow2)")
		}
		if incompatible&corrupt != 0 {
			return Header{}, invalidf("the qcow2 image is marked corrupt; repair it (qemu-img check -r all)")
		}
	}
	size := binary.BigEndian.Uint64(b[24:])
	if size == 0 || size > math.MaxInt64-sectorSize {
		return Header{}, invalidf("the qcow2 image says that its disk has %d bytes; it is broken", size)
	}
	return Header{Format: FormatQcow2, Size: roundUp(int64(size), sectorSize)}, nil
}

// roundUp returns the least multiple of unit that is at least n.
func roundUp(n, unit int64) int64 {
	if n > math.MaxInt64-unit {
		return n / unit * unit
	}
	return (n + unit - 1) / unit * unit
}
