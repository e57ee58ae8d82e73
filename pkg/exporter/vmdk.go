package exporter

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/klauspost/compress/zlib"
)

// A disk is in an OVA as a VMDK of the kind that is streamed (streamOptimized), which is measured before it is sent, as
// a qcow2 image is: its grains are compressed once to learn how long they are, and once more when they are sent.
//
//	header, descriptor │ grains of the first table, that table │ … │ directory │ footer │ end
//
// Grains of zeros are none of it, nor are tables without grains. Each part begins at a sector, and all but grains after
// a marker of one. VMware's Virtual Disk Format 5.0 has the format.

const (
	vmdkSector = 512
	// vmdkGrain is the size of a grain, bytes, and vmdkTable how many of them a table has.
	vmdkGrain, vmdkTable = 64 << 10, 512
	// vmdkSpan is what of the disk a table has, bytes.
	vmdkSpan = vmdkGrain * vmdkTable
	// vmdkOverhead is where the first grain is, and vmdkDescriptorRoom what the descriptor has before it, sectors.
	vmdkOverhead, vmdkDescriptorRoom = 128, 20
	vmdkVersion                      = 3
	// vmdkFlags: line ends are as they are to be, grains are compressed, and there are markers.
	vmdkFlags = 1<<0 | 1<<16 | 1<<17
	// vmdkAtEnd stands for the directory's place in the header: the footer has it.
	vmdkAtEnd = 1<<64 - 1
	// tableSectors are those of a table, without its marker.
	tableSectors = vmdkTable * 4 / vmdkSector
)

// The types of markers.
const (
	markerEnd, markerTable, markerDirectory, markerFooter = 0, 1, 2, 3
)

var little = binary.LittleEndian

// vmdkLayout is where a VMDK has what.
type vmdkLayout struct {
	name string
	// size is the disk's, in whole sectors.
	size int64
	// lengths are those of the grains, sectors; 0 for one of zeros.
	lengths []uint8
	// starts are where the grains of each table begin, sectors, and the last of them where the directory's marker is.
	starts []int64
}

// newVMDKLayout returns the layout of an image with nothing on it yet.
func newVMDKLayout(name string, size int64) *vmdkLayout {
	size = up(size, vmdkSector) * vmdkSector
	return &vmdkLayout{
		name: name, size: size, lengths: make([]uint8, up(size, vmdkGrain)), starts: []int64{vmdkOverhead},
	}
}

// tables is how many tables there are, if each has a grain.
func (l *vmdkLayout) tables() int64 { return up(l.size, vmdkSpan) }

// grainsOf are the lengths of the grains of a table.
func (l *vmdkLayout) grainsOf(table int64) []uint8 {
	return l.lengths[table*vmdkTable : min((table+1)*vmdkTable, int64(len(l.lengths)))]
}

// directorySectors are those of the directory, without its marker.
func (l *vmdkLayout) directorySectors() int64 { return up(l.tables()*4, vmdkSector) }

// end returns the size of the image, bytes: after the directory come the footer with its marker and the end.
func (l *vmdkLayout) end() int64 {
	return (l.starts[l.tables()] + 1 + l.directorySectors() + 3) * vmdkSector
}

// dataOf returns how many sectors the grains of a table take.
func dataOf(grains []uint8) int64 {
	sum := int64(0)
	for _, length := range grains {
		sum += int64(length)
	}
	return sum
}

// close notes where the next table's grains begin, once a table's are known, and returns what follows them.
func (l *vmdkLayout) close(table int64) []byte {
	start := l.starts[table]
	data := dataOf(l.grainsOf(table))
	if data == 0 {
		l.starts = append(l.starts, start)
		return nil
	}
	l.starts = append(l.starts, start+data+1+tableSectors)
	return l.table(table)
}

// table returns a table with its marker.
func (l *vmdkLayout) table(table int64) []byte {
	out := append(marker(tableSectors, markerTable), make([]byte, tableSectors*vmdkSector)...)
	at := l.starts[table]
	for i, length := range l.grainsOf(table) {
		if length > 0 {
			little.PutUint32(out[vmdkSector+i*4:], uint32(at))
			at += int64(length)
		}
	}
	return out
}

// tail returns what comes after the last table: the directory, the footer and the end.
func (l *vmdkLayout) tail() []byte {
	sectors := l.directorySectors()
	out := append(marker(sectors, markerDirectory), make([]byte, sectors*vmdkSector)...)
	for table := range l.tables() {
		if data := dataOf(l.grainsOf(table)); data > 0 {
			little.PutUint32(out[vmdkSector+table*4:], uint32(l.starts[table]+data+1))
		}
	}
	out = append(out, marker(1, markerFooter)...)
	out = append(out, l.header(uint64(l.starts[l.tables()])+1)...)
	return append(out, marker(0, markerEnd)...)
}

// marker is a sector that says what follows, of so many sectors.
func marker(sectors int64, kind uint32) []byte {
	out := make([]byte, vmdkSector)
	little.PutUint64(out, uint64(sectors))
	little.PutUint32(out[12:], kind)
	return out
}

// header returns the sector of the header, and of the footer.
func (l *vmdkLayout) header(directory uint64) []byte {
	h := make([]byte, vmdkSector)
	copy(h, "KDMV")
	little.PutUint32(h[4:], vmdkVersion)
	little.PutUint32(h[8:], vmdkFlags)
	little.PutUint64(h[12:], uint64(l.size/vmdkSector))
	little.PutUint64(h[20:], vmdkGrain/vmdkSector)
	little.PutUint64(h[28:], 1) // where the descriptor is
	little.PutUint64(h[36:], vmdkDescriptorRoom)
	little.PutUint32(h[44:], vmdkTable)
	little.PutUint64(h[56:], directory)
	little.PutUint64(h[64:], vmdkOverhead)
	copy(h[73:], "\n \r\n")     // which a transfer as text would change
	little.PutUint16(h[77:], 1) // deflate
	return h
}

// head returns all that comes before the first grain.
func (l *vmdkLayout) head() []byte {
	out := append(l.header(vmdkAtEnd), make([]byte, (vmdkOverhead-1)*vmdkSector)...)
	copy(out[vmdkSector:], l.descriptor())
	return out
}

// descriptor is the text that says what the image is. The geometry is what everybody takes for a disk of this size.
func (l *vmdkLayout) descriptor() string {
	const heads, perTrack = 255, 63
	sectors := l.size / vmdkSector
	id := crc32.ChecksumIEEE(fmt.Appendf(nil, "%s %d", l.name, l.size)) &^ 1 // the highest ones are reserved
	return fmt.Sprintf(`# Disk DescriptorFile
version=1
CID=%08x
parentCID=ffffffff
createType="streamOptimized"

# Extent description
RW %d SPARSE "%s"

# The Disk Data Base
#DDB

ddb.adapterType = "lsilogic"
ddb.geometry.cylinders = "%d"
ddb.geometry.heads = "%d"
ddb.geometry.sectors = "%d"
ddb.virtualHWVersion = "13"
`, min(id, 1<<32-4), sectors, l.name, up(sectors, heads*perTrack), heads, perTrack)
}

// grains compress grains.
type grains struct {
	out bytes.Buffer
	to  *zlib.Writer
}

// newGrains returns a compressor. The same grain has always the same result.
func newGrains() *grains {
	g := &grains{}
	var err error
	if g.to, err = zlib.NewWriterLevel(&g.out, zlib.BestSpeed); err != nil {
		panic(err) // a programming error
	}
	return g
}

// pack appends a grain of the disk as the image has it, in whole sectors: with its place, compressed.
func (g *grains) pack(to []byte, grain int64, data []byte) ([]byte, error) {
	g.out.Reset()
	g.to.Reset(&g.out)
	if _, err := g.to.Write(data); err != nil {
		return nil, err
	}
	if err := g.to.Close(); err != nil {
		return nil, err
	}
	begin := len(to)
	to = little.AppendUint64(to, uint64(grain)*(vmdkGrain/vmdkSector))
	to = little.AppendUint32(to, uint32(g.out.Len()))
	to = append(to, g.out.Bytes()...)
	room := up(int64(len(to)-begin), vmdkSector)*vmdkSector - int64(len(to)-begin)
	return append(to, make([]byte, room)...), nil
}
