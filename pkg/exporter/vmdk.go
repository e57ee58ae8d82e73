package exporter

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync"

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
	// vmdkGroup is how many grains of a table are known by how long they are together.
	vmdkGroup = 16
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

// grainLengths are the lengths of the grains of a table, sectors; 0 for one of zeros.
type grainLengths [vmdkTable]uint8

// grainSums are the sums of the lengths of each vmdkGroup grains of a table.
type grainSums [vmdkTable / vmdkGroup]uint16

// total is how many sectors the grains take.
func (s *grainSums) total() (sum int64) {
	for _, group := range s {
		sum += int64(group)
	}
	return sum
}

// sums adds them up.
func (l *grainLengths) sums() *grainSums {
	out := &grainSums{}
	for i, length := range l {
		out[i/vmdkGroup] += uint16(length)
	}
	return out
}

// vmdkLayout is where a VMDK has what. Of its grains it has only how long several are together, so that a full disk of
// 4 TiB needs 10 MiB of memory: who reads the image learns more of them by compressing them, which it does anyway.
type vmdkLayout struct {
	name string
	// size is the disk's, in whole sectors.
	size int64
	// sums are those of each table, nil for one without a grain.
	sums []*grainSums
	// starts are where the grains of each table begin, sectors, and the last of them where the directory's marker is.
	starts []int64
}

// newVMDKLayout returns the layout of an image with nothing on it yet.
func newVMDKLayout(name string, size int64) *vmdkLayout {
	l := &vmdkLayout{name: name, size: up(size, vmdkSector) * vmdkSector}
	l.sums = make([]*grainSums, 0, l.tables())
	l.starts = append(make([]int64, 0, l.tables()+1), vmdkOverhead)
	return l
}

// weight implements sized.
func (l *vmdkLayout) weight() int64 {
	out := int64(len(l.starts)) * 16
	for _, sums := range l.sums {
		if sums != nil {
			out += int64(len(sums)) * 2
		}
	}
	return out
}

// mostOfVMDK returns how many bytes the layout of an image of a disk may have.
func mostOfVMDK(size int64) int64 {
	tables := up(size, vmdkSpan)
	return (tables+1)*16 + tables*int64(len(grainSums{}))*2
}

// tables is how many tables there are, if each has a grain.
func (l *vmdkLayout) tables() int64 { return up(l.size, vmdkSpan) }

// grains is how many grains the disk has.
func (l *vmdkLayout) grains() int64 { return up(l.size, vmdkGrain) }

// directorySectors are those of the directory, without its marker.
func (l *vmdkLayout) directorySectors() int64 { return up(l.tables()*4, vmdkSector) }

// end returns the size of the image, bytes: after the directory come the footer with its marker and the end.
func (l *vmdkLayout) end() int64 {
	return (l.starts[l.tables()] + 1 + l.directorySectors() + 3) * vmdkSector
}

// close adds the next table, of which these are the lengths, and returns what follows its grains.
func (l *vmdkLayout) close(lengths *grainLengths) []byte {
	start, sums := l.starts[len(l.starts)-1], lengths.sums()
	total := sums.total()
	if total == 0 {
		l.skip()
		return nil
	}
	l.sums, l.starts = append(l.sums, sums), append(l.starts, start+total+1+tableSectors)
	return grainTable(start, lengths)
}

// skip adds the next table, which has no grain.
func (l *vmdkLayout) skip() {
	l.sums, l.starts = append(l.sums, nil), append(l.starts, l.starts[len(l.starts)-1])
}

// grainTable returns a table with its marker, of grains that begin at a sector.
func grainTable(at int64, lengths *grainLengths) []byte {
	out := append(marker(tableSectors, markerTable), make([]byte, tableSectors*vmdkSector)...)
	for i, length := range lengths {
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
	for table, sums := range l.sums {
		if sums != nil {
			little.PutUint32(out[vmdkSector+table*4:], uint32(l.starts[table]+sums.total()+1))
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

// compressors are of grains. The same grain has always the same result.
var compressors = sync.Pool{New: func() any {
	g := &grains{}
	var err error
	if g.to, err = zlib.NewWriterLevel(&g.out, zlib.BestSpeed); err != nil {
		panic(err) // a programming error
	}
	return g
}}

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
