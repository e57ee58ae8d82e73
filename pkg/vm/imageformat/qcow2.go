package imageformat

// Offsets and bits of a qcow2 header, all big endian; docs/interop/qcow2 of QEMU.
const (
	qcow2HeaderV2 = 72
	qcow2HeaderV3 = 104

	qcow2Dirty, qcow2Corrupt, qcow2DataFile, qcow2CompressionType, qcow2ExtendedL2 = 1 << 0, 1 << 1, 1 << 2, 1 << 3,
		1 << 4

	qcow2ExtensionDataFile   = 0x44415441
	qcow2ExtensionEncryption = 0x0537be77
	// maxExtensions bounds how many extensions of a header are read.
	maxExtensions = 64
	// maxL1 is the largest first table that QEMU opens, bytes.
	maxL1 = 32 << 20
	// maxRefcountTable is the largest table of reference counts that QEMU opens, bytes.
	maxRefcountTable = 8 << 20
)

func (f file) qcow2() (int64, error) {
	header, err := f.at(0, qcow2HeaderV2)
	if err != nil {
		return 0, err
	}
	version := big.Uint32(header[4:])
	if string(header[:4]) != "QFI\xfb" || version != 2 && version != 3 {
		return 0, corrupt(QCOW2, "version %d", version)
	}
	length := uint32(qcow2HeaderV2)
	var incompatible uint64
	if version == 3 {
		more, err := f.at(0, qcow2HeaderV3)
		if err != nil {
			return 0, err
		}
		incompatible, length = big.Uint64(more[72:]), big.Uint32(more[100:])
	}
	switch {
	case big.Uint64(header[8:]) != 0 || big.Uint32(header[16:]) != 0:
		return 0, refused("the qcow2 image has a backing file, which is not part of it: " +
			"merge the two first, with qemu-img convert -O qcow2")
	case incompatible&qcow2DataFile != 0:
		return 0, errDataFile
	case incompatible&qcow2Corrupt != 0:
		return 0, refused("the qcow2 image says that it is corrupt: repair it first, with qemu-img check -r all")
	case incompatible&^(qcow2Dirty|qcow2CompressionType|qcow2ExtendedL2) != 0:
		return 0, refused("the qcow2 image has features that are not known here (%#x)", incompatible)
	case big.Uint32(header[32:]) != 0:
		return 0, errEncrypted
	case big.Uint32(header[60:]) > MaxSnapshots:
		return 0, refused("the qcow2 image has %d internal snapshots, more than the %d that are taken: "+
			"remove them first, with qemu-img convert -O qcow2", big.Uint32(header[60:]), MaxSnapshots)
	}
	if err := f.qcow2Extensions(length, version); err != nil {
		return 0, err
	}
	return f.qcow2Tables(header)
}

var (
	errDataFile = &RefusedError{"the qcow2 image has its data in an external file, which is not part of it: " +
		"convert it first, with qemu-img convert -O qcow2"}
	errEncrypted = &RefusedError{"the qcow2 image is encrypted, and nobody here has the key: " +
		"decrypt it first, with qemu-img convert"}
)

// qcow2Extensions refuses what the extensions of a header say of other files and of encryption.
func (f file) qcow2Extensions(at, version uint32) error {
	if version == 3 && (at < qcow2HeaderV3 || at > HeadSize || at%8 != 0) {
		return corrupt(QCOW2, "a header of %d bytes", at)
	}
	offset := uint64(at)
	for range maxExtensions {
		head, err := f.at(offset, 8)
		if err != nil {
			return err
		}
		kind, length := big.Uint32(head), uint64(big.Uint32(head[4:]))
		switch kind {
		case 0:
			return nil
		case qcow2ExtensionDataFile:
			return errDataFile
		case qcow2ExtensionEncryption:
			return errEncrypted
		}
		offset += 8 + (length+7)&^7
		if offset > HeadSize {
			return corrupt(QCOW2, "an extension of %d bytes", length)
		}
	}
	return corrupt(QCOW2, "more than %d extensions", maxExtensions)
}

// qcow2Tables holds the tables of a header against the size of the disk and of the file.
func (f file) qcow2Tables(header []byte) (int64, error) {
	bits := big.Uint32(header[20:])
	if bits < 9 || bits > 21 {
		return 0, corrupt(QCOW2, "clusters of 2^%d bytes", bits)
	}
	size, err := virtualSize(QCOW2, big.Uint64(header[24:]))
	if err != nil {
		return 0, err
	}
	l1, at := uint64(big.Uint32(header[36:]))*8, big.Uint64(header[40:])
	// An entry of the first table stands for a cluster full of entries of 8 bytes, each for a cluster.
	reach := uint64(1) << (bits + bits - 3)
	switch {
	case l1 > maxL1 || l1/8 < (uint64(size)+reach-1)/reach:
		return 0, corrupt(QCOW2, "a first table of %d bytes for a disk of %d", l1, size)
	case at%(1<<bits) != 0 || !f.has(at, l1):
		return 0, corrupt(QCOW2, "its first table is not in the file")
	}
	refcounts, at := uint64(big.Uint32(header[56:]))<<bits, big.Uint64(header[48:])
	switch {
	case refcounts > maxRefcountTable:
		return 0, corrupt(QCOW2, "a table of reference counts of %d bytes", refcounts)
	case at%(1<<bits) != 0 || !f.has(at, refcounts):
		return 0, corrupt(QCOW2, "its table of reference counts is not in the file")
	}
	return size, nil
}
