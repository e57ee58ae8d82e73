package exporter

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"sort"
)

// A disk is served as a qcow2 image without room for a copy of it: its clusters are compressed once to learn how long
// they are, which gives the image's tables, and once more when they are sent. So each byte of the image has its place
// before the first is sent, and a client whose connection was cut goes on at any of them.
//
//	header, L1 table, L2 tables, table and blocks of reference counts │ clusters as they are │ compressed ones, packed
//
// Clusters of zeros are none of the image. The tables are made of the lengths when they are sent: nothing else of the
// image is in memory. docs/interop/qcow2 of QEMU has the format.

const (
	qcow2Version      = 3
	qcow2HeaderLength = 104
	// qcow2Clusters is of how many clusters an image consists at most while they may be larger, so that little is to be
	// known of it.
	qcow2Clusters = 1 << 20
	qcow2MinBits  = 16
	qcow2MaxBits  = 21
	// qcow2Sector is the unit of a compressed cluster's length.
	qcow2Sector = 512
	// qcow2Copied is set in the entry of what has one reference, qcow2Compressed in that of a compressed cluster.
	qcow2Copied     = 1 << 63
	qcow2Compressed = 1 << 62
	// refcountBits is the width of a reference count.
	refcountBits = 16
	// markEvery is after how many clusters of the disk it is known where the next one is in the image.
	markEvery = 256
)

// errTooLarge is a disk of whose image the server would have to know more than it has memory for.
var errTooLarge = errors.New("the disk is too large to be served as qcow2: download it raw or compressed")

// mark is where clusters of the disk are in the image.
type mark struct {
	// plain is how many are there as they are before, and packed how many bytes of compressed ones.
	plain, packed int64
}

// layout is where an image has what.
type layout struct {
	bits uint
	// size is the disk's, in whole sectors: QEMU leaves out a part of one.
	size int64
	// lengths are the compressed lengths of the disk's clusters: 0 for one of zeros, and the size of a cluster for one
	// that the image has as it is.
	lengths []uint32
	// marks has one for each markEvery of them, and the last is what all have.
	marks []mark
	// tables are the L2 tables: of which entry of the L1 table each is, and ordinals are their numbers by the entry,
	// from 1 on; 0 for none.
	tables, ordinals []uint32
	// l1Clusters, countsTable and countsBlocks are the clusters that these parts have, and countsAt where the table of
	// reference counts is. first is the cluster at which the data begin.
	l1Clusters, countsAt, countsTable, countsBlocks, first int64
	// start is where the compressed clusters begin, and packedEnd where the last of them ends; end is the image's size.
	start, packedEnd, end int64
	// sum is of all before the data.
	sum [sha256.Size]byte
}

// clusterBits returns the size of an image's clusters, as a power of two.
func clusterBits(size int64) (uint, error) {
	bits := uint(qcow2MinBits)
	for bits < qcow2MaxBits && size>>bits > qcow2Clusters {
		bits++
	}
	if size>>bits > 2*qcow2Clusters {
		return 0, errTooLarge
	}
	return bits, nil
}

func (l *layout) cluster() int64 { return 1 << l.bits }

// weight implements sized.
func (l *layout) weight() int64 {
	return int64(len(l.lengths)+len(l.tables)+len(l.ordinals))*4 + int64(len(l.marks))*16
}

// mostOfLayout returns how many bytes the layout of an image of a disk may have.
func mostOfLayout(size int64) (int64, error) {
	bits, err := clusterBits(size)
	if err != nil {
		return 0, err
	}
	clusters := up(size, 1<<bits)
	tables := max(up(clusters, 1<<bits/8), 1)
	return (clusters+2*tables)*4 + (clusters/markEvery+2)*16, nil
}

func up(n, of int64) int64 { return (n + of - 1) / of }

// newLayout returns the layout of an image of a disk, of whose clusters these are the lengths.
func newLayout(bits uint, size int64, lengths []uint32) *layout {
	l := &layout{bits: bits, size: up(size, qcow2Sector) * qcow2Sector, lengths: lengths}
	perTable := l.cluster() / 8
	l.ordinals = make([]uint32, max(up(int64(len(lengths)), perTable), 1))
	l.marks = make([]mark, 0, len(lengths)/markEvery+2)
	all := mark{}
	for i, length := range lengths {
		if i%markEvery == 0 {
			l.marks = append(l.marks, all)
		}
		if t := int64(i) / perTable; length > 0 && l.ordinals[t] == 0 {
			l.tables = append(l.tables, uint32(t))
			l.ordinals[t] = uint32(len(l.tables))
		}
		all.add(length, l.cluster())
	}
	l.marks = append(l.marks, all)
	l.l1Clusters = max(up(int64(len(l.ordinals))*8, l.cluster()), 1)
	data := all.plain + up(all.packed, l.cluster())
	l.countsAt = 1 + l.l1Clusters + int64(len(l.tables))
	// The blocks of reference counts count themselves and their table, too.
	perBlock := l.perBlock()
	l.countsBlocks, l.countsTable = 1, 1
	for {
		clusters := l.countsAt + l.countsTable + l.countsBlocks + data
		blocks, table := up(clusters, perBlock), up(up(clusters, perBlock)*8, l.cluster())
		if blocks <= l.countsBlocks && table <= l.countsTable {
			break
		}
		l.countsBlocks, l.countsTable = max(l.countsBlocks, blocks), max(l.countsTable, table)
	}
	l.first = l.countsAt + l.countsTable + l.countsBlocks
	l.start = (l.first + all.plain) << bits
	l.packedEnd = l.start + all.packed
	l.end = (l.first + data) << bits
	l.sum = sumOf(l)
	return l
}

// add counts a cluster of a length.
func (m *mark) add(length uint32, cluster int64) {
	if int64(length) == cluster {
		m.plain++
	} else {
		m.packed += int64(length)
	}
}

// perBlock is how many clusters a block of reference counts is of.
func (l *layout) perBlock() int64 { return l.cluster() * 8 / refcountBits }

// walk calls visit for the clusters of the disk that the image has, from the first on of which there is more than the
// mark says that before holds of, until it returns false. at is what is before the cluster.
func (l *layout) walk(before func(mark) bool, visit func(cluster int64, length uint32, at mark) bool) {
	n := max(sort.Search(len(l.marks), func(i int) bool { return !before(l.marks[i]) })-1, 0)
	at := l.marks[n]
	for i := n * markEvery; i < len(l.lengths); i++ {
		length := l.lengths[i]
		if length > 0 && !visit(int64(i), length, at) {
			return
		}
		at.add(length, l.cluster())
	}
}

// plainAt returns the cluster of the disk that is the nth of those that the image has as they are.
func (l *layout) plainAt(n int64) (found int64) {
	l.walk(func(m mark) bool { return m.plain <= n }, func(cluster int64, length uint32, at mark) bool {
		found = cluster
		return int64(length) != l.cluster() || at.plain < n
	})
	return found
}

// packedAt returns the compressed cluster that has a place of the image, where it begins and how long it is.
func (l *layout) packedAt(place int64) (cluster, begins int64, length uint32) {
	place -= l.start
	l.walk(func(m mark) bool { return m.packed <= place }, func(c int64, n uint32, at mark) bool {
		if int64(n) == l.cluster() {
			return true
		}
		cluster, begins, length = c, l.start+at.packed, n
		return at.packed+int64(n) <= place
	})
	return cluster, begins, length
}

var big = binary.BigEndian

// table fills in a cluster of those before the data.
func (l *layout) table(cluster int64, out []byte) {
	clear(out)
	tables := 1 + l.l1Clusters
	blocks := l.countsAt + l.countsTable
	switch {
	case cluster == 0:
		l.writeHeader(out)
	case cluster < tables:
		l.writeL1(cluster-1, out)
	case cluster < l.countsAt:
		l.writeL2(int64(l.tables[cluster-tables]), out)
	case cluster < blocks:
		perCluster := l.cluster() / 8
		from := (cluster - l.countsAt) * perCluster
		for i := from; i < min(from+perCluster, l.countsBlocks); i++ {
			big.PutUint64(out[(i-from)*8:], uint64(blocks+i)<<l.bits)
		}
	default:
		l.writeCounts(cluster-blocks, out)
	}
}

func (l *layout) writeHeader(h []byte) {
	copy(h, "QFI\xfb")
	big.PutUint32(h[4:], qcow2Version)
	big.PutUint32(h[20:], uint32(l.bits))
	big.PutUint64(h[24:], uint64(l.size))
	big.PutUint32(h[36:], uint32(len(l.ordinals)))
	big.PutUint64(h[40:], uint64(l.cluster()))
	big.PutUint64(h[48:], uint64(l.countsAt)<<l.bits)
	big.PutUint32(h[56:], uint32(l.countsTable))
	big.PutUint32(h[96:], 4) // the logarithm of refcountBits
	big.PutUint32(h[100:], qcow2HeaderLength)
}

// writeL1 writes a cluster of the L1 table, which is at the second cluster; the L2 tables are after it.
func (l *layout) writeL1(n int64, out []byte) {
	perCluster := l.cluster() / 8
	for i := n * perCluster; i < min((n+1)*perCluster, int64(len(l.ordinals))); i++ {
		if ordinal := int64(l.ordinals[i]); ordinal > 0 {
			big.PutUint64(out[(i-n*perCluster)*8:], uint64(l.l1Clusters+ordinal)<<l.bits|qcow2Copied)
		}
	}
}

// writeL2 writes the L2 table of an entry of the L1 table.
func (l *layout) writeL2(entry int64, out []byte) {
	perTable := l.cluster() / 8
	from := entry * perTable
	at := l.marks[from/markEvery]
	shift := 62 - (l.bits - 8)
	for i := from / markEvery * markEvery; i < min(from+perTable, int64(len(l.lengths))); i++ {
		length := l.lengths[i]
		switch {
		case i < from || length == 0:
		case int64(length) == l.cluster():
			big.PutUint64(out[(i-from)*8:], uint64(l.first+at.plain)<<l.bits|qcow2Copied)
		default:
			begins := l.start + at.packed
			end := begins + int64(length)
			sectors := (end-1)/qcow2Sector - begins/qcow2Sector // after the one in which it begins
			big.PutUint64(out[(i-from)*8:], uint64(begins)|uint64(sectors)<<shift|qcow2Compressed)
		}
		at.add(length, l.cluster())
	}
}

// writeCounts writes a block of reference counts: one of everything, but as many of a cluster of the image as there are
// compressed ones with a part in it.
func (l *layout) writeCounts(block int64, out []byte) {
	from := block * l.perBlock()
	to := from + l.perBlock()
	count := func(cluster int64) {
		if cluster >= from && cluster < to {
			at := out[(cluster-from)*2:]
			big.PutUint16(at, big.Uint16(at)+1)
		}
	}
	packed := l.start >> l.bits
	for i := from; i < min(to, packed); i++ {
		count(i)
	}
	begin := max(from<<l.bits-l.start, 0)
	l.walk(func(m mark) bool { return m.packed <= begin }, func(_ int64, length uint32, at mark) bool {
		if int64(length) == l.cluster() {
			return true
		}
		begins := l.start + at.packed
		if begins >= to<<l.bits {
			return false
		}
		for cluster := begins >> l.bits; cluster <= (begins+int64(length)-1)>>l.bits; cluster++ {
			count(cluster)
		}
		return true
	})
}

// sumOf returns the checksum of an image's tables.
func sumOf(l *layout) (sum [sha256.Size]byte) {
	of, cluster := sha256.New(), make([]byte, l.cluster())
	for c := range l.first {
		l.table(c, cluster)
		_, _ = of.Write(cluster) // never fails
	}
	of.Sum(sum[:0])
	return sum
}
