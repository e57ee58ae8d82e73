package exporter

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"os"
	"sort"
	"sync"
)

// stripe is how many grains are compressed at a time.
const stripe = stretch / vmdkGrain

// measureVMDK reads a disk and returns the layout of its VMDK, of which sum gets the bytes. It does not look at holes.
func measureVMDK(
	ctx context.Context, disk *os.File, size int64, name string, sum hash.Hash,
) (*vmdkLayout, error) {
	l := newVMDKLayout(name, size)
	_, _ = sum.Write(l.head()) // never fails
	var of [processors]stripes
	for i := range of {
		of[i].buffer = make([]byte, stretch)
	}
	for table := int64(0); table < l.tables(); table++ {
		next := nextData(disk, table*vmdkSpan, size)
		for ; table < l.tables() && (table+1)*vmdkSpan <= next; table++ {
			l.skip()
		}
		if table == l.tables() {
			break
		}
		var lengths grainLengths
		end := min((table+1)*vmdkTable, l.grains())
		for from := table * vmdkTable; from < end; from += processors * stripe {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			var wait sync.WaitGroup
			for n := range int64(processors) {
				wait.Go(func() { of[n].measure(&lengths, disk, size, from+n*stripe) })
			}
			wait.Wait()
			for n := range of {
				if of[n].err != nil {
					return nil, of[n].err
				}
				_, _ = sum.Write(of[n].packed)
			}
		}
		_, _ = sum.Write(l.close(&lengths))
	}
	if l.starts[l.tables()] >= 1<<32 {
		return nil, errTooLargeOVA // a table's entries have 32 bits
	}
	_, _ = sum.Write(l.tail())
	return l, nil
}

// stripes compresses one stripe after the other.
type stripes struct {
	buffer, packed []byte
	err            error
}

// measure sets the lengths of the grains of a table from one on, and packed to what the image has of them.
func (s *stripes) measure(lengths *grainLengths, disk *os.File, size, from int64) {
	s.packed = s.packed[:0]
	at := from * vmdkGrain
	if at >= size {
		return
	}
	data := s.buffer[:min(int64(len(s.buffer)), up(size-at, vmdkGrain)*vmdkGrain)]
	clear(data) // the last grain may have a part of the disk only
	zero, err := load(disk, data[:min(int64(len(data)), size-at)], at)
	if err != nil {
		s.err = fmt.Errorf("read the disk at %d: %w", at, err)
	}
	if err != nil || zero {
		return
	}
	g := compressors.Get().(*grains)
	defer compressors.Put(g)
	for grain := from; len(data) > 0; grain++ {
		if one := data[:vmdkGrain]; !zeros(one) {
			before := len(s.packed)
			if s.packed, s.err = g.pack(s.packed, grain, one); s.err != nil {
				return
			}
			lengths[grain%vmdkTable] = uint8((len(s.packed) - before) / vmdkSector)
		}
		data = data[vmdkGrain:]
	}
}

// vmdk is a VMDK of a disk, a piece of an OVA.
type vmdk struct {
	*vmdkLayout
	disk *image
	// lengths are those of the grains of a table, as far as known says.
	table   int64
	lengths grainLengths
	known   [vmdkTable]bool
	// raw is there once a grain was read, and packed is the one that was compressed last, of this number.
	raw, packed []byte
	number      int64
}

func newVMDK(l *vmdkLayout, disk *image) *vmdk {
	return &vmdk{vmdkLayout: l, disk: disk, number: -1}
}

func (v *vmdk) length() int64 { return v.end() }

// at returns what the image has around a place, and where that begins.
func (v *vmdk) at(place int64) (data []byte, begins int64, err error) {
	at := place / vmdkSector
	switch {
	case at < vmdkOverhead:
		return v.head(), 0, nil
	case at >= v.starts[v.tables()]:
		return v.tail(), v.starts[v.tables()] * vmdkSector, nil
	}
	table := int64(sort.Search(int(v.tables()), func(i int) bool { return v.starts[i+1] > at }))
	if table != v.table {
		v.table, v.known, v.number = table, [vmdkTable]bool{}, -1
	}
	begin := v.starts[table]
	for group, sum := range v.sums[table] {
		if end := begin + int64(sum); at < end {
			return v.within(group, begin, end, at)
		}
		begin += int64(sum)
	}
	data, err = v.grainTable()
	return data, begin * vmdkSector, err
}

// within returns the grain of a group that has the sector at; the group begins and ends at these.
func (v *vmdk) within(group int, begin, end, at int64) ([]byte, int64, error) {
	for i := group * vmdkGroup; i < (group+1)*vmdkGroup; i++ {
		if err := v.learn(i); err != nil {
			return nil, 0, err
		}
		next := begin + int64(v.lengths[i])
		if next > end {
			return nil, 0, errChanged
		}
		if at < next {
			err := v.grain(i)
			return v.packed, begin * vmdkSector, err
		}
		begin = next
	}
	return nil, 0, errChanged
}

// grainTable returns the table, of which all grains are to be as they were measured.
func (v *vmdk) grainTable() ([]byte, error) {
	for group, sum := range v.sums[v.table] {
		for i := group * vmdkGroup; sum > 0 && i < (group+1)*vmdkGroup; i++ {
			if err := v.learn(i); err != nil {
				return nil, err
			}
		}
		if sum == 0 {
			clear(v.lengths[group*vmdkGroup : (group+1)*vmdkGroup])
		}
	}
	if *v.lengths.sums() != *v.sums[v.table] {
		return nil, errChanged
	}
	return grainTable(v.starts[v.table], &v.lengths), nil
}

// learn makes the length of a grain of the table known.
func (v *vmdk) learn(i int) error {
	if v.known[i] {
		return nil
	}
	return v.grain(i)
}

// grain sets packed to a grain of the table, and its length.
func (v *vmdk) grain(i int) error {
	grain := v.table*vmdkTable + int64(i)
	if grain == v.number {
		return nil
	}
	v.number, v.packed = -1, v.packed[:0]
	if at := grain * vmdkGrain; at < v.disk.size {
		if v.raw == nil {
			v.raw = make([]byte, vmdkGrain)
		}
		clear(v.raw)
		if _, err := v.disk.ReadAt(v.raw[:min(vmdkGrain, v.disk.size-at)], at); err != nil {
			return fmt.Errorf("read the disk at %d: %w", at, err)
		}
		if !zeros(v.raw) {
			g := compressors.Get().(*grains)
			defer compressors.Put(g)
			var err error
			if v.packed, err = g.pack(v.packed, grain, v.raw); err != nil {
				return err
			}
		}
	}
	length := uint8(len(v.packed) / vmdkSector)
	if v.known[i] && v.lengths[i] != length {
		return errChanged
	}
	v.lengths[i], v.known[i], v.number = length, true, grain
	return nil
}

func (v *vmdk) unchanged() error { return v.disk.unchanged() }

// errTooLargeOVA is a disk, or disks, that the server has too little memory for, or a VMDK no room.
var errTooLargeOVA = errors.New("the disks are too large to be served as OVA: `virtctl export` writes a file of " +
	"them, and --format=qcow2 downloads each")
