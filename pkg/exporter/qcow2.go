package exporter

import (
	"encoding/binary"
	"errors"
)

// A disk is served as a qcow2 image without room for a copy of it: its clusters are compressed once to learn how long
// they are, which gives the image's tables, and once more when they are sent. So each byte of the image has its place
// before the first is sent, and a client whose connection was cut goes on at any of them.
//
//	header, L1 table, L2 tables, table and blocks of reference counts │ clusters as they are │ compressed ones, packed
//
// Clusters of zeros are none of the image. docs/interop/qcow2 of QEMU has the format.

const (
	qcow2Version      = 3
	qcow2HeaderLength = 104
	// qcow2Clusters is of how many clusters an image consists at most while they may be larger, so that its tables
	// are small.
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
)

// errTooLarge is a disk whose image would have tables larger than the server may be.
var errTooLarge = errors.New("the disk is too large to be served as qcow2: download it raw or compressed")

// layout is where an image has what.
type layout struct {
	bits uint
	// size is the disk's, in whole sectors: QEMU leaves out a part of one.
	size int64
	// meta is the beginning of the image, all of its tables.
	meta []byte
	// plain are the disk's clusters that follow as they are, packed the compressed ones; packed[i] begins at
	// offsets[i], and the last of them is where the last one ends.
	plain, packed []uint32
	offsets       []int64
	// start is where the compressed ones begin, end the image's size.
	start, end int64
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

func up(n, of int64) int64 { return (n + of - 1) / of }

// newLayout returns the layout of an image of a disk. lengths are the compressed lengths of its clusters: 0 for one of
// zeros, and the size of a cluster for one that is not compressed.
func newLayout(bits uint, size int64, lengths []uint32) *layout {
	l := &layout{bits: bits, size: up(size, qcow2Sector) * qcow2Sector}
	total := int64(0)
	for i, length := range lengths {
		switch {
		case length == 0:
		case int64(length) == l.cluster():
			l.plain = append(l.plain, uint32(i))
		default:
			l.packed, l.offsets = append(l.packed, uint32(i)), append(l.offsets, total)
			total += int64(length)
		}
	}
	perTable := l.cluster() / 8
	l1 := max(up(int64(len(lengths)), perTable), 1) // entries, each for an L2 table
	used := make([]bool, l1)
	tables := int64(0)
	for i, length := range lengths {
		if t := int64(i) / perTable; length > 0 && !used[t] {
			used[t] = true
			tables++
		}
	}
	l1Clusters := max(up(l1*8, l.cluster()), 1)
	data := int64(len(l.plain)) + up(total, l.cluster())
	fixed := 1 + l1Clusters + tables
	// The blocks of reference counts count themselves and their table, too.
	perBlock := l.cluster() * 8 / refcountBits
	blocks, table := int64(1), int64(1)
	for {
		all := fixed + table + blocks + data
		moreBlocks, moreTable := up(all, perBlock), up(up(all, perBlock)*8, l.cluster())
		if moreBlocks <= blocks && moreTable <= table {
			break
		}
		blocks, table = max(blocks, moreBlocks), max(table, moreTable)
	}
	first := fixed + table + blocks // the cluster at which the data begin
	l.start = (first + int64(len(l.plain))) << l.bits
	for i := range l.offsets {
		l.offsets[i] += l.start
	}
	l.offsets = append(l.offsets, l.start+total)
	l.end = (first + data) << l.bits
	l.meta = make([]byte, first<<l.bits)
	l.writeHeader(l1, 1+l1Clusters+tables, table)
	l.writeTables(lengths, used, first, 1+l1Clusters)
	l.writeCounts(fixed, table, blocks, first)
	return l
}

var big = binary.BigEndian

func (l *layout) writeHeader(l1, refcountTable, refcountTableClusters int64) {
	h := l.meta
	copy(h, "QFI\xfb")
	big.PutUint32(h[4:], qcow2Version)
	big.PutUint32(h[20:], uint32(l.bits))
	big.PutUint64(h[24:], uint64(l.size))
	big.PutUint32(h[36:], uint32(l1))
	big.PutUint64(h[40:], uint64(l.cluster()))
	big.PutUint64(h[48:], uint64(refcountTable)<<l.bits)
	big.PutUint32(h[56:], uint32(refcountTableClusters))
	big.PutUint32(h[96:], 4) // the logarithm of refcountBits
	big.PutUint32(h[100:], qcow2HeaderLength)
}

// writeTables writes the L1 table, which is at the second cluster, and the L2 tables, of which the first is at tables.
func (l *layout) writeTables(lengths []uint32, used []bool, first, tables int64) {
	entries := make([][]byte, len(used))
	next := tables << l.bits
	for i := range used {
		if used[i] {
			big.PutUint64(l.meta[l.cluster()+int64(i)*8:], uint64(next)|qcow2Copied)
			entries[i] = l.meta[next:][:l.cluster()]
			next += l.cluster()
		}
	}
	perTable := l.cluster() / 8
	set := func(cluster uint32, value uint64) {
		big.PutUint64(entries[int64(cluster)/perTable][int64(cluster)%perTable*8:], value)
	}
	for i, cluster := range l.plain {
		set(cluster, uint64(first+int64(i))<<l.bits|qcow2Copied)
	}
	shift := 62 - (l.bits - 8)
	for i, cluster := range l.packed {
		at, end := l.offsets[i], l.offsets[i]+int64(lengths[cluster])
		sectors := (end-1)/qcow2Sector - at/qcow2Sector // after the one in which it begins
		set(cluster, uint64(at)|uint64(sectors)<<shift|qcow2Compressed)
	}
}

// writeCounts writes the reference counts: one of everything, but as many of a cluster of the image as there are
// compressed ones with a part in it.
func (l *layout) writeCounts(tableAt, table, blocks, first int64) {
	blocksAt := tableAt + table
	for i := range blocks {
		big.PutUint64(l.meta[tableAt<<l.bits+i*8:], uint64(blocksAt+i)<<l.bits)
	}
	counts := l.meta[blocksAt<<l.bits:]
	count := func(cluster int64) {
		at := counts[cluster*2:]
		big.PutUint16(at, big.Uint16(at)+1)
	}
	for i := range first + int64(len(l.plain)) {
		count(i)
	}
	for i := range l.packed {
		for cluster := l.offsets[i] >> l.bits; cluster <= (l.offsets[i+1]-1)>>l.bits; cluster++ {
			count(cluster)
		}
	}
}
