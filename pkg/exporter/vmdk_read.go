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
const stripe = part / vmdkGrain

// measureVMDK reads a disk and returns the layout of its VMDK, of which sum gets the bytes.
func measureVMDK(
	ctx context.Context, disk *os.File, size int64, name string, sum hash.Hash,
) (*vmdkLayout, error) {
	l := newVMDKLayout(name, size)
	_, _ = sum.Write(l.head()) // never fails
	var of [processors]stripes
	for i := range of {
		of[i] = stripes{buffer: make([]byte, part), g: newGrains()}
	}
	for from := int64(0); from < int64(len(l.lengths)); from += processors * stripe {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var wait sync.WaitGroup
		for n := range int64(processors) {
			wait.Go(func() { of[n].measure(l, disk, size, from+n*stripe) })
		}
		wait.Wait()
		for n := range of {
			if of[n].err != nil {
				return nil, of[n].err
			}
			_, _ = sum.Write(of[n].packed)
			if end := min(from+int64(n+1)*stripe, int64(len(l.lengths))); end > from+int64(n)*stripe &&
				(end%vmdkTable == 0 || end == int64(len(l.lengths))) {
				_, _ = sum.Write(l.close((end - 1) / vmdkTable))
			}
		}
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
	g              *grains
	err            error
}

// measure sets the lengths of the grains from one on, and packed to what the image has of them.
func (s *stripes) measure(l *vmdkLayout, disk *os.File, size, from int64) {
	s.packed = s.packed[:0]
	if from >= int64(len(l.lengths)) {
		return
	}
	at := from * vmdkGrain
	data := s.buffer[:min(part, up(size-at, vmdkGrain)*vmdkGrain)]
	clear(data) // the last grain may have a part of the disk only
	zero, err := load(disk, data[:min(int64(len(data)), size-at)], at)
	if err != nil {
		s.err = fmt.Errorf("read the disk at %d: %w", at, err)
	}
	if err != nil || zero {
		return
	}
	for grain := from; len(data) > 0; grain++ {
		if one := data[:vmdkGrain]; !zeros(one) {
			before := len(s.packed)
			if s.packed, s.err = s.g.pack(s.packed, grain, one); s.err != nil {
				return
			}
			l.lengths[grain] = uint8((len(s.packed) - before) / vmdkSector)
		}
		data = data[vmdkGrain:]
	}
}

// vmdk is a VMDK of a disk, a piece of an OVA.
type vmdk struct {
	*vmdkLayout
	disk *image
	// g and raw are there once a grain was read.
	g   *grains
	raw []byte
	// packed is the grain that was read last.
	packed []byte
}

func newVMDK(l *vmdkLayout, disk *image) *vmdk {
	return &vmdk{vmdkLayout: l, disk: disk}
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
	begin := v.starts[table]
	for i, length := range v.grainsOf(table) {
		if at < begin+int64(length) {
			data, err := v.grain(table*vmdkTable+int64(i), length)
			return data, begin * vmdkSector, err
		}
		begin += int64(length)
	}
	return v.table(table), begin * vmdkSector, nil
}

// grain reads and compresses a grain.
func (v *vmdk) grain(grain int64, length uint8) ([]byte, error) {
	at := grain * vmdkGrain
	if v.g == nil {
		v.g, v.raw = newGrains(), make([]byte, vmdkGrain)
	}
	clear(v.raw)
	if _, err := v.disk.ReadAt(v.raw[:min(vmdkGrain, v.disk.size-at)], at); err != nil {
		return nil, fmt.Errorf("read the disk at %d: %w", at, err)
	}
	var err error
	if v.packed, err = v.g.pack(v.packed[:0], grain, v.raw); err != nil {
		return nil, err
	}
	if len(v.packed) != int(length)*vmdkSector {
		return nil, errChanged
	}
	return v.packed, nil
}

func (v *vmdk) unchanged() error { return v.disk.unchanged() }

// errTooLargeOVA is a disk, or disks, that the server has too little memory for, or a VMDK no room.
var errTooLargeOVA = errors.New("the disks are too large to be served as OVA: `virtctl export` writes a file of " +
	"them, and --format=qcow2 downloads each")
