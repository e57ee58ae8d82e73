package vhostmd

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Size is the size of the disk, bytes.
const Size = 256 << 10

// The disk begins with a header of four numbers, big-endian: a signature, whether the content is being written, the sum
// of its bytes, and its length. The content follows.
const (
	signature  = "mvbd"
	headerSize = 16
	maxContent = Size - headerSize
)

// Image returns a disk with a report.
func Image(r Report) ([]byte, error) {
	header, content, err := encode(r)
	if err != nil {
		return nil, err
	}
	out := make([]byte, Size)
	copy(out, header)
	copy(out[headerSize:], content)
	return out, nil
}

// Update writes a report to a disk that a guest may read meanwhile: it is marked busy until the report is complete.
func Update(disk io.WriterAt, r Report) error {
	header, content, err := encode(r)
	if err != nil {
		return err
	}
	busy := append([]byte(nil), header...)
	binary.BigEndian.PutUint32(busy[4:], 1)
	for _, part := range []struct {
		data []byte
		at   int64
	}{{busy, 0}, {content, headerSize}, {header, 0}} {
		if _, err := disk.WriteAt(part.data, part.at); err != nil {
			return fmt.Errorf("write the metrics: %w", err)
		}
	}
	return nil
}

func encode(r Report) (header, content []byte, err error) {
	if content, err = r.XML(); err != nil {
		return nil, nil, fmt.Errorf("encode the metrics: %w", err)
	}
	content = append(content, '\n') // vm-dump-metrics adds none
	if len(content) > maxContent {
		return nil, nil, fmt.Errorf("the metrics have %d bytes; a disk has room for %d", len(content), maxContent)
	}
	sum := uint32(0)
	for _, b := range content {
		sum += uint32(b)
	}
	header = make([]byte, headerSize)
	copy(header, signature)
	binary.BigEndian.PutUint32(header[8:], sum)
	binary.BigEndian.PutUint32(header[12:], uint32(len(content))) //nolint:gosec // maxContent bounds it
	return header, content, nil
}
