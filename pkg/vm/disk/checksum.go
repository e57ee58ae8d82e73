package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
)

const (
	// sampleHead is the size of an image's beginning that counts, bytes: headers, partition tables.
	sampleHead = 64 << 10
	// samples is the number of blocks of sampleBlock bytes that count of the rest, evenly spread, and the last.
	samples     = 64
	sampleBlock = 4 << 10
)

// Checksum distinguishes images: of the same container disk on two nodes for example, where a guest that moves has to
// find the same. To read all of an image would hold up every start, so it samples: the size, the beginning, and blocks
// of the rest. It is never zero, and has 31 bits: the field of the status that it goes into is an int32 in the CRD.
func Checksum(r io.ReaderAt, size int64) (uint32, error) {
	sum := crc32.NewIEEE()
	_, _ = sum.Write(binary.LittleEndian.AppendUint64(nil, uint64(size))) // never fails
	buf := make([]byte, sampleHead)
	add := func(at int64, n int) error {
		read, err := r.ReadAt(buf[:n], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read the image at %d: %w", at, err)
		}
		_, _ = sum.Write(buf[:read])
		return nil
	}
	if err := add(0, sampleHead); err != nil {
		return 0, err
	}
	if rest := size - sampleHead - sampleBlock; rest > 0 {
		step := max(rest/samples/sampleBlock*sampleBlock, sampleBlock)
		for at := int64(sampleHead); at < size-sampleBlock; at += step {
			if err := add(at, sampleBlock); err != nil {
				return 0, err
			}
		}
	}
	if err := add(max(0, size-sampleBlock), sampleBlock); err != nil {
		return 0, err
	}
	return max(sum.Sum32()&math.MaxInt32, 1), nil
}
