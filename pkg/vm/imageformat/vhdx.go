package imageformat

import "bytes"

// Places and identifiers of a VHDX, little endian; MS-VHDX.
const (
	vhdxRegions  = 192 << 10
	vhdxTable    = 64 << 10
	maxVHDXItems = 2047
)

var (
	vhdxMetadata   = []byte("\x06\xa2\x7c\x8b\x90\x47\x9a\x4b\xb8\xfe\x57\x5f\x05\x0f\x88\x6e")
	vhdxParameters = []byte("\x37\x67\xa1\xca\x36\xfa\x43\x4d\xb3\xb6\x33\xf0\xaa\x44\xe7\x6b")
	vhdxSize       = []byte("\x24\x42\xa5\x2f\x1b\xcd\x76\x48\xb2\x11\x5d\xbe\xd8\x3b\xf4\xb8")
	vhdxParent     = []byte("\x2d\x5f\xd3\xa8\x0b\xb3\x4d\x45\xab\xf7\xd3\xd8\x48\x34\xab\x0c")
)

func (f file) vhdx() (int64, error) {
	if head, err := f.at(0, 8); err != nil || string(head) != "vhdxfile" {
		return 0, corrupt(VHDX, "it does not begin as one")
	}
	at, err := f.vhdxRegion()
	if err != nil {
		return 0, err
	}
	table, err := f.at(at, vhdxTable)
	if err != nil {
		return 0, err
	}
	items := int(little.Uint16(table[10:]))
	if string(table[:8]) != "metadata" || items > maxVHDXItems {
		return 0, corrupt(VHDX, "it has no table of metadata")
	}
	var size uint64
	var parameters bool
	for i := range items {
		item := table[32+32*i:][:32]
		value := at + uint64(little.Uint32(item[16:]))
		switch id := item[:16]; {
		case bytes.Equal(id, vhdxParent):
			return 0, errVHDXParent
		case bytes.Equal(id, vhdxParameters):
			b, err := f.at(value, 8)
			if err != nil {
				return 0, err
			}
			block := little.Uint32(b)
			if little.Uint32(b[4:])&2 != 0 {
				return 0, errVHDXParent
			}
			if block < 1<<20 || block > 256<<20 || block&(block-1) != 0 {
				return 0, corrupt(VHDX, "blocks of %d bytes", block)
			}
			parameters = true
		case bytes.Equal(id, vhdxSize):
			b, err := f.at(value, 8)
			if err != nil {
				return 0, err
			}
			size = little.Uint64(b)
		}
	}
	if !parameters {
		return 0, corrupt(VHDX, "it does not say how large its blocks are")
	}
	return virtualSize(VHDX, size)
}

var errVHDXParent = &RefusedError{"the VHDX is a differencing disk: its parent (a backing file) is not part of it; " +
	"merge the two first"}

// vhdxRegion returns the offset of the metadata.
func (f file) vhdxRegion() (uint64, error) {
	table, err := f.at(vhdxRegions, vhdxTable)
	if err != nil {
		return 0, err
	}
	entries := int(little.Uint32(table[8:]))
	if string(table[:4]) != "regi" || entries < 0 || entries > maxVHDXItems {
		return 0, corrupt(VHDX, "it has no table of regions")
	}
	for i := range entries {
		entry := table[16+32*i:][:32]
		if bytes.Equal(entry[:16], vhdxMetadata) {
			at := little.Uint64(entry[16:])
			if at > 1<<50 {
				return 0, corrupt(VHDX, "its metadata is not in the file")
			}
			return at, nil
		}
	}
	return 0, corrupt(VHDX, "it has no metadata")
}
