package disk

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
	"unicode/utf16"
)

// The layout of an image, in sectors of 2 KiB. The directories are there twice, as two trees: plain ISO 9660
// with Rock Ridge names, which Linux and BSD read, and Joliet, which Windows reads. The other directories of
// both trees lie between the roots and the files.
const isoSector = 2048

const (
	sectorPrimary = 16 + iota // below lies the system area
	sectorJoliet
	sectorTerminator
	sectorPathLittle
	sectorPathBig
	sectorJolietPathLittle
	sectorJolietPathBig
	sectorRoot
)

// padding is added at the end, sectors, as mkisofs does: programs that look for other file systems first
// (busybox's findfs) give up on a disk that ends where those would begin.
const padding = 150

// Image gives an ISO 9660 image with the files, whose names are paths from its root, parts joined by /. The
// same input always gives the same bytes: time stamps are the epoch, and the order is that of the names.
//
// It is written here because kdomanski/iso9660 v0.4.0 writes neither Rock Ridge nor Joliet, and so makes user_data of
// user-data, which cloud-init does not find. diskfs/go-diskfs v1.9.4 writes both and was tried with cloud-init's files:
// its dates are those of the moment, without an option, so that two images of the same files differ (in 66 bytes); it
// copies the files to a directory first; and the image ends within a sector (65,546 bytes) and has no padding.
func Image(label string, files map[string][]byte) ([]byte, error) {
	tree, err := newTree(files)
	if err != nil {
		return nil, err
	}
	img := make([]byte, int(tree.sectors)*isoSector)
	sector := func(n uint32) []byte { return img[int(n)*isoSector : int(n+1)*isoSector] }

	for _, kind := range []treeKind{plainTree, jolietTree} {
		little, err := tree.pathTable(binary.LittleEndian, kind)
		if err != nil {
			return nil, err
		}
		big, err := tree.pathTable(binary.BigEndian, kind)
		if err != nil {
			return nil, err
		}
		first := layouts[kind]
		copy(sector(first.pathLittle), little)
		copy(sector(first.pathBig), big)
		volumeDescriptor(sector(first.descriptor), kind, label, tree, uint32(len(little)))
		for _, d := range tree.dirs {
			copy(img[int(d.sector[kind])*isoSector:], d.records(kind))
		}
	}
	copy(sector(sectorTerminator), "\xffCD001\x01")
	for _, d := range tree.dirs {
		for _, f := range d.files {
			copy(img[int(f.sector)*isoSector:], f.data)
		}
	}
	return img, nil
}

// treeKind is one of the two trees.
type treeKind int

const (
	plainTree treeKind = iota
	jolietTree
)

// layouts hold the sectors at which each tree begins.
var layouts = [...]struct{ descriptor, pathLittle, pathBig uint32 }{
	plainTree:  {sectorPrimary, sectorPathLittle, sectorPathBig},
	jolietTree: {sectorJoliet, sectorJolietPathLittle, sectorJolietPathBig},
}

// maxPlain is the longest identifier in the plain tree, without the version. Whoever reads Rock Ridge sees the whole
// name.
const maxPlain = 30

// plainName maps a file's name to ISO 9660's letters, level 2.
func plainName(name string) string {
	mapped := shortened(plainLetters(name, true), name)
	if !strings.Contains(mapped, ".") {
		mapped += "."
	}
	return mapped + ";1"
}

// shortened returns an identifier of at most maxPlain letters, its own for each name.
func shortened(id, name string) string {
	if len(id) <= maxPlain {
		return id
	}
	return fmt.Sprintf("%s_%08X", id[:maxPlain-10], crc32.ChecksumIEEE([]byte(name)))
}

// plainLetters maps a name to the letters of ISO 9660; directories have no dots.
func plainLetters(name string, dots bool) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9', dots && r == '.':
			return r
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		}
		return '_'
	}, name)
}

// volumeDescriptor writes a tree's descriptor; the offsets are from ECMA-119, 8.4. pathTable is that table's size,
// bytes.
func volumeDescriptor(b []byte, kind treeKind, label string, tree *isoTree, pathTable uint32) {
	text := func(from, to int, s string) {
		if kind == jolietTree {
			s = ucs2(s)
			for i := from; i+1 < to; i += 2 {
				b[i], b[i+1] = 0, ' '
			}
		} else {
			copy(b[from:to], strings.Repeat(" ", to-from))
		}
		copy(b[from:to], s)
	}
	b[0] = byte(kind) + 1
	copy(b[1:], "CD001\x01")
	text(8, 40, "")
	text(40, 72, label)
	both32(b[80:], tree.sectors)
	if kind == jolietTree {
		copy(b[88:], "%/E") // UCS-2 level 3
	}
	both16(b[120:], 1)
	both16(b[124:], 1)
	both16(b[128:], isoSector)
	both32(b[132:], pathTable)
	first := layouts[kind]
	binary.LittleEndian.PutUint32(b[140:], first.pathLittle)
	binary.BigEndian.PutUint32(b[148:], first.pathBig)
	copy(b[156:], dirRecord("\x00", tree.dirs[0].sector[kind], tree.dirs[0].size[kind], true, nil))
	for _, span := range [][2]int{{190, 318}, {318, 446}, {446, 574}, {574, 702}, {702, 739}, {739, 776}, {776, 813}} {
		text(span[0], span[1], "")
	}
	for _, at := range []int{813, 830, 847, 864} {
		copy(b[at:], strings.Repeat("0", 16))
	}
	b[881] = 1
}

// dirRecord returns one directory record (ECMA-119, 9.1) with its system use entries.
func dirRecord(id string, sector, size uint32, dir bool, use []byte) []byte {
	n := 33 + len(id)
	n += n % 2
	b := make([]byte, n, n+len(use)+1)
	both32(b[2:], sector)
	both32(b[10:], size)
	copy(b[18:], []byte{70, 1, 1, 0, 0, 0, 0}) // 1970-01-01T00:00:00Z
	if dir {
		b[25] = 2
	}
	both16(b[28:], 1)
	b[32] = byte(len(id))
	copy(b[33:], id)
	b = append(b, use...)
	if len(b)%2 == 1 {
		b = append(b, 0)
	}
	b[0] = byte(len(b))
	return b
}

// System use entries: SP and ER announce Rock Ridge, PX has the mode, NM the name.
var (
	suspSP = []byte("SP\x07\x01\xbe\xef\x00")
	suspER = append([]byte("ER\x12\x01\x0a\x00\x00\x01"), "RRIP_1991A"...)
)

// suspPX has the mode: a file's when links is 1, else a directory's with so many links.
func suspPX(links uint32) []byte {
	mode := uint32(0o100444)
	if links > 1 {
		mode = 0o040555
	}
	b := make([]byte, 36)
	copy(b, "PX\x24\x01")
	both32(b[4:], mode)
	both32(b[12:], links)
	both32(b[20:], 0)
	both32(b[28:], 0)
	return b
}

func suspNM(name string) []byte {
	return append([]byte{'N', 'M', byte(5 + len(name)), 1, 0}, name...)
}

func both32(b []byte, v uint32) {
	binary.LittleEndian.PutUint32(b, v)
	binary.BigEndian.PutUint32(b[4:], v)
}

func both16(b []byte, v uint16) {
	binary.LittleEndian.PutUint16(b, v)
	binary.BigEndian.PutUint16(b[2:], v)
}

func ucs2(s string) string {
	var b []byte
	for _, u := range utf16.Encode([]rune(s)) {
		b = binary.BigEndian.AppendUint16(b, u)
	}
	return string(b)
}
