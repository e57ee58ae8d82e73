package disk

import (
	"encoding/binary"
	"slices"
	"strings"
	"unicode/utf16"
)

// The layout of an image, in sectors of 2 KiB. There is one directory, the root, in two trees: plain
// ISO 9660 with Rock Ridge names, which Linux and BSD read, and Joliet, which Windows reads.
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
	sectorJolietRoot
	sectorData
)

// padding is added at the end, sectors, as mkisofs does: programs that look for other file systems first
// (busybox's findfs) give up on a disk that ends where those would begin.
const padding = 150

// Image gives an ISO 9660 image with the files in its root. The same input always gives the same
// bytes: time stamps are the epoch, and the order is that of the names.
//
// It is written here because the library at hand (kdomanski/iso9660) knows neither Rock Ridge nor Joliet, and
// so makes user_data of user-data, which cloud-init does not find.
func Image(label string, files map[string][]byte) ([]byte, error) {
	entries, sectors, err := layOut(files)
	if err != nil {
		return nil, err
	}
	img := make([]byte, int(sectors)*isoSector)
	sector := func(n int) []byte { return img[n*isoSector : (n+1)*isoSector] }

	volumeDescriptor(sector(sectorPrimary), 1, label, sectors, sectorRoot, sectorPathLittle, sectorPathBig)
	volumeDescriptor(sector(sectorJoliet), 2, label, sectors, sectorJolietRoot, sectorJolietPathLittle, sectorJolietPathBig)
	copy(sector(sectorTerminator), "\xffCD001\x01")
	pathTable(sector(sectorPathLittle), binary.LittleEndian, sectorRoot)
	pathTable(sector(sectorPathBig), binary.BigEndian, sectorRoot)
	pathTable(sector(sectorJolietPathLittle), binary.LittleEndian, sectorJolietRoot)
	pathTable(sector(sectorJolietPathBig), binary.BigEndian, sectorJolietRoot)

	root := dirRecord("\x00", sectorRoot, isoSector, true, slices.Concat(suspSP, suspER, suspPX(true)))
	root = append(root, dirRecord("\x01", sectorRoot, isoSector, true, suspPX(true))...)
	joliet := dirRecord("\x00", sectorJolietRoot, isoSector, true, nil)
	joliet = append(joliet, dirRecord("\x01", sectorJolietRoot, isoSector, true, nil)...)
	for _, e := range entries {
		root = append(root, dirRecord(e.plain, e.sector, uint32(len(e.data)), false, slices.Concat(suspPX(false), suspNM(e.name)))...)
		joliet = append(joliet, dirRecord(ucs2(e.name), e.sector, uint32(len(e.data)), false, nil)...)
		copy(img[int(e.sector)*isoSector:], e.data)
	}
	if len(root) > isoSector || len(joliet) > isoSector {
		return nil, invalidf("too many files for one directory sector: %d", len(files))
	}
	copy(sector(sectorRoot), root)
	copy(sector(sectorJolietRoot), joliet)
	return img, nil
}

// entry is one file: its name, its name in plain ISO 9660, and its first sector.
type entry struct {
	name, plain string
	sector      uint32
	data        []byte
}

// maxImage bounds the files' sum, bytes; cloud-init's data is far below.
const maxImage = 64 << 20

// layOut sorts the files and gives them sectors.
func layOut(files map[string][]byte) ([]entry, uint32, error) {
	var entries []entry
	total := 0
	for name, data := range files {
		if name == "" || len(name) > 30 {
			return nil, 0, invalidf("file name %q does not fit an ISO image", name)
		}
		entries = append(entries, entry{name: name, plain: plainName(name), data: data})
		if total += len(data); total > maxImage {
			return nil, 0, invalidf("the files are larger than %d MiB", maxImage>>20)
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	next := uint32(sectorData)
	for i := range entries {
		entries[i].sector = next
		next += uint32((len(entries[i].data) + isoSector - 1) / isoSector)
	}
	return entries, next + padding, nil
}

// plainName maps a name to ISO 9660's letters, level 2.
func plainName(name string) string {
	mapped := strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.':
			return r
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		}
		return '_'
	}, name)
	if !strings.Contains(mapped, ".") {
		mapped += "."
	}
	return mapped + ";1"
}

// volumeDescriptor writes a primary (1) or Joliet (2) descriptor; offsets are those of ECMA-119, 8.4.
func volumeDescriptor(b []byte, kind byte, label string, sectors uint32, root, pathLittle, pathBig uint32) {
	text := func(from, to int, s string) {
		if kind == 2 {
			s = ucs2(s)
			for i := from; i+1 < to; i += 2 {
				b[i], b[i+1] = 0, ' '
			}
		} else {
			copy(b[from:to], strings.Repeat(" ", to-from))
		}
		copy(b[from:to], s)
	}
	b[0] = kind
	copy(b[1:], "CD001\x01")
	text(8, 40, "")
	text(40, 72, label)
	both32(b[80:], sectors)
	if kind == 2 {
		copy(b[88:], "%/E") // UCS-2 level 3
	}
	both16(b[120:], 1)
	both16(b[124:], 1)
	both16(b[128:], isoSector)
	both32(b[132:], pathTableSize)
	binary.LittleEndian.PutUint32(b[140:], pathLittle)
	binary.BigEndian.PutUint32(b[148:], pathBig)
	copy(b[156:], dirRecord("\x00", root, isoSector, true, nil))
	for _, span := range [][2]int{{190, 318}, {318, 446}, {446, 574}, {574, 702}, {702, 739}, {739, 776}, {776, 813}} {
		text(span[0], span[1], "")
	}
	for _, at := range []int{813, 830, 847, 864} {
		copy(b[at:], strings.Repeat("0", 16))
	}
	b[881] = 1
}

// pathTableSize is that of a table with the root alone.
const pathTableSize = 10

func pathTable(b []byte, order binary.ByteOrder, root uint32) {
	b[0] = 1
	order.PutUint32(b[2:], root)
	order.PutUint16(b[6:], 1)
}

// dirRecord is one directory record (ECMA-119, 9.1) with its system use entries.
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

func suspPX(dir bool) []byte {
	mode, links := uint32(0o100444), uint32(1)
	if dir {
		mode, links = 0o040555, 2
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
