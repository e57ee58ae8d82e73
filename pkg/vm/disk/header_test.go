package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// qcow2 makes a header as qemu-img writes it, and change spoils it.
func qcow2(version uint32, size uint64, change func([]byte)) []byte {
	b := make([]byte, 512)
	copy(b, "QFI\xfb")
	binary.BigEndian.PutUint32(b[4:], version)
	binary.BigEndian.PutUint32(b[20:], 16)
	binary.BigEndian.PutUint64(b[24:], size)
	binary.BigEndian.PutUint32(b[100:], 104)
	if change != nil {
		change(b)
	}
	return b
}

func TestReadHeader(t *testing.T) {
	for _, tc := range []struct {
		name string
		data []byte
		want Header
		err  string
	}{
		{name: "qcow2 v3", data: qcow2(3, 1<<30, nil), want: Header{FormatQcow2, 1 << 30}},
		{name: "qcow2 v2", data: qcow2(2, 1000, nil), want: Header{FormatQcow2, 1024}},
		{name: "raw", data: make([]byte, 1000), want: Header{FormatRaw, 1024}},
		{name: "short raw", data: []byte("x"), want: Header{FormatRaw, 512}},
		{name: "empty", data: nil, err: "empty"},
		{name: "cut off", data: qcow2(3, 1, nil)[:60], err: "cut off"},
		{name: "cut off v3", data: qcow2(3, 1, nil)[:80], err: "cut off"},
		{name: "qcow", data: qcow2(1, 1, nil), err: "qcow version 1"},
		{
			name: "backing file", data: qcow2(3, 1<<20, func(b []byte) { binary.BigEndian.PutUint64(b[8:], 0x200) }),
			err: "backing file",
		},
		{name: "data file", data: qcow2(3, 1<<20, func(b []byte) { b[79] = 4 }), err: "another file"},
		{name: "corrupt", data: qcow2(3, 1<<20, func(b []byte) { b[79] = 2 }), err: "corrupt"},
		{
			name: "dirty is fine", data: qcow2(3, 1<<20, func(b []byte) { b[79] = 1 }),
			want: Header{FormatQcow2, 1 << 20},
		},
		{name: "encrypted", data: qcow2(2, 1<<20, func(b []byte) { b[35] = 1 }), err: "encrypted"},
		{name: "no size", data: qcow2(3, 0, nil), err: "0 bytes"},
		{name: "huge", data: qcow2(3, 1<<63, nil), err: "broken"},
		{name: "clusters", data: qcow2(3, 1, func(b []byte) { b[23] = 40 }), err: "clusters"},
		{name: "vmdk", data: []byte("KDMV0000"), err: "VMDK"},
		{name: "gzip", data: []byte("\x1f\x8b\x08\x00"), err: "gzip"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ReadHeader(bytes.NewReader(tc.data), int64(len(tc.data)))
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || !errors.Is(err, ErrInvalid) {
					t.Errorf("got %v, want an invalid image: %q", err, tc.err)
				}
				return
			}
			if err != nil || got != tc.want {
				t.Errorf("got %v, %v, want %v", got, err, tc.want)
			}
		})
	}
}

func FuzzReadHeader(f *testing.F) {
	f.Add(qcow2(3, 1<<30, nil), int64(1<<20))
	f.Add([]byte("conectix"), int64(8))
	f.Fuzz(func(t *testing.T, data []byte, size int64) {
		h, err := ReadHeader(bytes.NewReader(data), size)
		if err == nil && (h.Size <= 0 || h.Size%sectorSize != 0 || h.Format != FormatRaw && h.Format != FormatQcow2) {
			t.Errorf("%+v", h)
		}
	})
}
