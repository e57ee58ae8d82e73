// Package imageformat reads the headers of untrusted disk images before any other program does: which format an image
// has, how large its disk is, and whether it leads to anything outside of itself. It refuses, with a sentence that says
// so, an image with a backing file, with data in another file, with encryption, with more snapshots than anybody needs,
// or with a header that contradicts itself. virtctl checks an image before it sends it, and the pod that takes it
// before qemu-img does. It does no I/O but by the reader that it is given.
package imageformat

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// Format is a format of disk images.
type Format string

// The formats that are taken. An ISO image is Raw, and so is whatever has no header of another format.
const (
	Raw   Format = "raw"
	QCOW2 Format = "qcow2"
	VMDK  Format = "vmdk"
	VHD   Format = "vhd"
	VHDX  Format = "vhdx"
)

// Formats are the formats that a user may name.
var Formats = []Format{Raw, QCOW2, VMDK, VHD, VHDX}

// Compression is the format in which a whole image is compressed.
type Compression string

// The compressions that are undone.
const (
	None Compression = ""
	Gzip Compression = "gzip"
	XZ   Compression = "xz"
	Zstd Compression = "zstd"
)

const (
	// HeadSize is the number of bytes of an image's beginning that Detect and Early want to see, if it has so many.
	HeadSize = 64 << 10
	// MaxSnapshots is the number of internal snapshots that an image may have.
	MaxSnapshots = 16
	sector       = 512
)

// Info holds what the header says about an image.
type Info struct {
	Format Format
	// VirtualSize is the size of the disk, bytes.
	VirtualSize int64
}

// RefusedError says why an image is not taken.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }

func refused(format string, args ...any) error { return &RefusedError{fmt.Sprintf(format, args...)} }

// errShort is the error of an image that ends before what is to be read, or whose beginning alone is known.
var errShort = errors.New("the image ends too early")

// CompressionOf detects by its first bytes how an image is compressed.
func CompressionOf(head []byte) Compression {
	for _, known := range []struct {
		magic string
		is    Compression
	}{{"\x1f\x8b", Gzip}, {"\xfd7zXZ\x00", XZ}, {"\x28\xb5\x2f\xfd", Zstd}} {
		if bytes.HasPrefix(head, []byte(known.magic)) {
			return known.is
		}
	}
	return None
}

// others are formats that are known and not taken: where their magic is, and what they are called.
var others = []struct {
	at    int
	magic string
	name  string
}{
	{0, "QFI\xfb\x00\x00\x00\x01", "a qcow image of version 1"},
	{0, "COWD", "a VMDK of version 3 (COWD)"},
	{0, "QED\x00", "a QED image"},
	{0, "WithoutFreeSpace", "a Parallels image"},
	{0, "WithouFreSpacExt", "a Parallels image"},
	{0, "Bochs Virtual HD Image", "a Bochs image"},
	{0x40, "\x7f\x10\xda\xbe", "a VDI image of VirtualBox"},
	{0, "BZh", "compressed with bzip2"},
	{0, "PK\x03\x04", "a ZIP archive"},
	{257, "ustar", "a tar archive (an OVA is one)"},
	{0, "7z\xbc\xaf\x27\x1c", "a 7z archive"},
}

// Detect detects the format of an image by its first bytes, HeadSize if it has so many. An unknown format is Raw.
func Detect(head []byte) (Format, error) {
	for _, other := range others {
		if len(head) >= other.at && bytes.HasPrefix(head[other.at:], []byte(other.magic)) {
			return "", refused("the image is %s, which is not taken: convert it first, with "+
				"qemu-img convert -O qcow2, or take the disk out of the archive", other.name)
		}
	}
	switch {
	case bytes.HasPrefix(head, []byte("QFI\xfb")):
		return QCOW2, nil
	case bytes.HasPrefix(head, []byte("KDMV")):
		return VMDK, nil
	case bytes.HasPrefix(bytes.TrimLeft(head[:min(len(head), 1<<10)], " \t\r\n"), []byte("# Disk DescriptorFile")):
		return "", extentsElsewhere(head)
	case bytes.HasPrefix(head, []byte("vhdxfile")):
		return VHDX, nil
	case bytes.HasPrefix(head, []byte("conectix")):
		return VHD, nil
	}
	return Raw, nil
}

// Check reads the header of a whole image of size bytes.
func Check(r io.ReaderAt, size int64, format Format) (Info, error) {
	f := file{r, size}
	virtual, err := f.virtualSize(format)
	if errors.Is(err, errShort) {
		err = refused("the %s image has a corrupt header: %v", format, err)
	}
	if err == nil && virtual <= 0 {
		err = refused("the %s image has a disk of no size", format)
	}
	return Info{Format: format, VirtualSize: virtual}, err
}

// Early refuses an image by its first bytes alone, so that the rest need not be sent. The size is 0 when it is in a
// later part of the image.
func Early(head []byte, format Format) (Info, error) {
	if format == Raw {
		return Info{Format: Raw}, nil
	}
	f := file{bytes.NewReader(head), math.MaxInt64}
	virtual, err := f.virtualSize(format)
	if errors.Is(err, errShort) {
		return Info{Format: format}, nil
	}
	return Info{Format: format, VirtualSize: virtual}, err
}

// file is an image.
type file struct {
	r    io.ReaderAt
	size int64
}

// virtualSize returns the size of the image's disk, bytes, by its header as the format's parser reads it.
func (f file) virtualSize(format Format) (int64, error) {
	switch format {
	case Raw:
		return f.size, nil
	case QCOW2:
		return f.qcow2()
	case VMDK:
		return f.vmdk()
	case VHD:
		return f.vhd()
	case VHDX:
		return f.vhdx()
	}
	return 0, refused("%q is not a format of images that is taken", format)
}

// at reads n bytes at an offset.
func (f file) at(offset uint64, n int) ([]byte, error) {
	if !f.has(offset, uint64(n)) {
		return nil, errShort
	}
	out := make([]byte, n)
	if _, err := f.r.ReadAt(out, int64(offset)); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errShort
		}
		return nil, fmt.Errorf("read the image's header: %w", err)
	}
	return out, nil
}

// has reports whether n bytes at an offset are in the image.
func (f file) has(offset, n uint64) bool {
	return offset <= uint64(f.size) && n <= uint64(f.size)-offset
}

// virtualSize returns the disk size that a header states, and refuses an impossible one.
func virtualSize(format Format, size uint64) (int64, error) {
	if size > 1<<60 {
		return 0, refused("the %s image has a corrupt header: a disk of %d bytes", format, size)
	}
	return int64(size), nil
}

// corrupt refuses an image whose header contradicts itself.
func corrupt(format Format, what string, args ...any) error {
	return refused("the %s image has a corrupt header: %s", format, fmt.Sprintf(what, args...))
}

var (
	big    = binary.BigEndian
	little = binary.LittleEndian
)
