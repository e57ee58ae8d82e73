package foreign

import (
	"bytes"
	"crypto/md5" //nolint:gosec // as the format has it
	"encoding/binary"
	"errors"
	"io"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/vm/imageformat"
)

// vmaDevice is a device that a test puts into an archive.
type vmaDevice struct {
	name string
	data []byte
}

// vmaOf writes an archive as vzdump does, its clusters in an order of their own.
func vmaOf(text string, devices ...vmaDevice) []byte {
	blob := []byte{0}
	add := func(data string) uint32 {
		at := uint32(len(blob))
		blob = binary.LittleEndian.AppendUint16(blob, uint16(len(data)))
		blob = append(blob, data...)
		return at
	}
	head := make([]byte, vmaHeader)
	copy(head, vmaMagic)
	big := binary.BigEndian
	big.PutUint32(head[4:], 1)
	copy(head[8:], "uuid of 16 bytes")
	if text != "" {
		big.PutUint32(head[vmaNames:], add("qemu-server.conf\x00"))
		big.PutUint32(head[vmaConfigs:], add(text))
	}
	type cluster struct {
		device, number int
	}
	var clusters []cluster
	for i, device := range devices {
		info := head[vmaDevices+32*(i+1):]
		big.PutUint32(info, add(device.name+"\x00"))
		big.PutUint64(info[8:], uint64(len(device.data)))
		for n := 0; n*vmaCluster < len(device.data); n++ {
			clusters = append(clusters, cluster{i + 1, n})
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	random.Shuffle(len(clusters), func(i, j int) { clusters[i], clusters[j] = clusters[j], clusters[i] })
	big.PutUint32(head[48:], vmaHeader)
	big.PutUint32(head[52:], uint32(len(blob)))
	big.PutUint32(head[56:], uint32(vmaHeader+len(blob)))
	head = slices.Concat(head, blob)
	sign := func(data []byte, at int) {
		sum := md5.Sum(data) //nolint:gosec // as the format has it
		copy(data[at:], sum[:])
	}
	sign(head, 32)
	out := head
	for part := range slices.Chunk(clusters, vmaClusters) {
		extent := make([]byte, vmaExtent)
		copy(extent, vmaExtentMagic)
		copy(extent[8:], head[8:24])
		var body []byte
		for i, c := range part {
			data := devices[c.device-1].data[c.number*vmaCluster:]
			mask := uint16(0)
			for block := range vmaBlocks {
				whole := make([]byte, vmaBlock)
				if block*vmaBlock < len(data) {
					copy(whole, data[block*vmaBlock:])
				}
				if bytes.Trim(whole, "\x00") != nil {
					mask |= 1 << block
					body = append(body, whole...)
				}
			}
			big.PutUint64(extent[40+8*i:], uint64(mask)<<48|uint64(c.device)<<32|uint64(c.number))
		}
		big.PutUint16(extent[6:], uint16(len(body)/vmaBlock))
		sign(extent, 24)
		out = append(append(out, extent...), body...)
	}
	return out
}

// sparse is a disk of some size with data here and there.
func sparse(size int) []byte {
	data := make([]byte, size)
	random := rand.New(rand.NewPCG(3, 4))
	for range size / 20000 {
		at := random.IntN(size)
		data[at] = byte(random.IntN(255) + 1)
	}
	return data
}

// An archive of vzdump is a VM with its disks as they were, wherever they are read.
func TestVMA(t *testing.T) {
	const text = "name: box\nscsi0: local-lvm:vm-1-disk-0,size=9M\nscsi1: nfs:vm-1-disk-1,backup=0\nefidisk0: a:b\n"
	disk := sparse(9<<20 + 512)
	path := put(t, "vzdump-qemu-1.vma", string(vmaOf(text, vmaDevice{"drive-efidisk0", sparse(528 << 10)},
		vmaDevice{"drive-scsi0", disk}, vmaDevice{"vmstate", sparse(1 << 20)})))
	f, err := opened(t, path)
	if err != nil {
		t.Fatal(err)
	}
	made, err := f.Make(Wish{})
	if err != nil || made.VM.Name != "box" || len(made.Claims) != 1 ||
		!strings.Contains(strings.Join(made.NotIncluded, "\n"), "scsi1, nfs:vm-1-disk-1, which its backups leave out") {
		t.Fatalf("%+v, %v", made, err)
	}
	if err := f.Verify(t.Context(), nothing); err != nil {
		t.Fatal(err)
	}
	image := f.Payloads(made)[0].Image
	got, err := io.ReadAll(io.NewSectionReader(image, 0, image.Size))
	if err != nil || !bytes.Equal(got, disk) || image.Format != imageformat.Raw {
		t.Fatalf("%d bytes of %d: %v", len(got), len(disk), err)
	}
	random := rand.New(rand.NewPCG(5, 6))
	for range 500 {
		part := make([]byte, random.IntN(200000))
		at := random.IntN(len(disk))
		n, err := image.ReadAt(part, int64(at))
		if want := disk[at:min(at+len(part), len(disk))]; !bytes.Equal(part[:n], want) ||
			(err != nil) != (n < len(part)) || err != nil && !errors.Is(err, io.EOF) {
			t.Fatalf("%d bytes at %d: %d, %v", len(part), at, n, err)
		}
	}
}

// A damaged archive is refused: whatever byte of a header changes, and wherever it ends.
func TestVMADamaged(t *testing.T) {
	whole := vmaOf("name: box\nscsi0: a:b\n", vmaDevice{"drive-scsi0", sparse(6 << 20)})
	read := func(data []byte) error {
		_, err := readVMA(content{bytes.NewReader(data), int64(len(data))})
		return err
	}
	if err := read(whole); err != nil {
		t.Fatal(err)
	}
	size := int(binary.BigEndian.Uint32(whole[56:]))
	for at := 4; at < size+vmaExtent; at += 7 {
		data := bytes.Clone(whole)
		data[at] ^= 0x40
		if read(data) == nil {
			t.Errorf("byte %d changed", at)
		}
	}
	for _, end := range []int{0, 100, vmaHeader, size, size + 10, size + vmaExtent, len(whole) - 1} {
		if err := read(whole[:end]); !errors.Is(err, errCut) {
			t.Errorf("ends at %d: %v", end, err)
		}
	}
	if err := read(append(bytes.Clone(whole), whole[size:]...)); err == nil {
		t.Error("each cluster is there twice")
	}
	if _, err := opened(t, put(t, "a.vma", string(vmaOf("", vmaDevice{"drive-scsi0", sparse(1 << 20)})))); err == nil ||
		!strings.Contains(err.Error(), "no text of a VM") {
		t.Errorf("without a text: %v", err)
	}
	if _, err := opened(t, put(t, "a.vma", string(vmaOf("scsi1: a:b\n", vmaDevice{"drive-scsi0", nil})))); err == nil ||
		!strings.Contains(err.Error(), "disk scsi1 (a:b) is not there") {
		t.Errorf("without a disk: %v", err)
	}
}

// A cluster that is not there is found missing though another one is there twice, also when all of both are zeros.
func TestVMAClusterOfZerosMissing(t *testing.T) {
	data := vmaOf("name: box\nscsi0: a:b\n", vmaDevice{"drive-scsi0", make([]byte, 3*vmaCluster)})
	extent := data[binary.BigEndian.Uint32(data[56:]):]
	copy(extent[40:48], extent[48:56])
	clear(extent[24:40])
	sum := md5.Sum(extent[:vmaExtent]) //nolint:gosec // as the format has it
	copy(extent[24:], sum[:])
	_, err := readVMA(content{bytes.NewReader(data), int64(len(data))})
	if err == nil || !strings.Contains(err.Error(), "of drive-scsi0 is there twice") {
		t.Error(err)
	}
}

// A device whose clusters the archive has no room to name is refused before anything is made for them.
func TestVMADeviceTooLarge(t *testing.T) {
	data := vmaOf("name: box\nscsi0: a:b\n", vmaDevice{"drive-scsi0", sparse(1 << 20)})
	size := binary.BigEndian.Uint32(data[56:])
	binary.BigEndian.PutUint64(data[vmaDevices+32+8:], vmaCluster<<32)
	clear(data[32:48])
	sum := md5.Sum(data[:size]) //nolint:gosec // as the format has it
	copy(data[32:], sum[:])
	_, err := readVMA(content{bytes.NewReader(data), int64(len(data))})
	if !errors.Is(err, errCut) || !strings.Contains(err.Error(), `device "drive-scsi0" has 4294967296 clusters`) {
		t.Error(err)
	}
}

// The text of an archive's VM is the one that vzdump names, or the only one.
func TestVMAText(t *testing.T) {
	for _, row := range []struct {
		names      []string
		want, fail string
	}{
		{names: []string{"qemu-server.conf", "other.conf", "qemu-server.fw"}, want: "qemu-server.conf"},
		{names: []string{"100.conf", "qemu-server.fw"}, want: "100.conf"},
		{names: []string{"b.conf", "a.conf"}, fail: "the texts of several VMs, a.conf, b.conf"},
		{names: []string{"qemu-server.fw"}, fail: "no text of a VM"},
	} {
		archive := &vma{configs: map[string][]byte{}}
		for _, name := range row.names {
			archive.configs[name] = []byte(name)
		}
		text, err := archive.text()
		if row.fail != "" && (err == nil || !strings.Contains(err.Error(), row.fail)) || row.fail == "" && err != nil ||
			string(text) != row.want {
			t.Errorf("%v: %q, %v", row.names, text, err)
		}
	}
}

// FuzzVMA reads what is called an archive of vzdump. Its checksums are made right, so that they keep nothing away.
func FuzzVMA(f *testing.F) {
	f.Add(vmaOf("name: box\n", vmaDevice{"drive-scsi0", sparse(200 << 10)}))
	f.Fuzz(func(t *testing.T, data []byte) {
		data = bytes.Clone(data)
		sign := func(from, to int64, at int) {
			if from < 0 || to > int64(len(data)) || to-from < int64(at+md5.Size) {
				return
			}
			clear(data[from+int64(at) : from+int64(at)+md5.Size])
			sum := md5.Sum(data[from:to]) //nolint:gosec // as the format has it
			copy(data[from+int64(at):], sum[:])
		}
		if len(data) > 60 {
			size := int64(binary.BigEndian.Uint32(data[56:]))
			sign(0, size, 32)
			for at := size; at+vmaExtent <= int64(len(data)); {
				blocks := 0
				for i := range vmaClusters {
					if info := data[at+int64(40+8*i):]; info[3] != 0 {
						blocks += bits.OnesCount16(binary.BigEndian.Uint16(info))
					}
				}
				sign(at, at+vmaExtent, 24)
				at += vmaExtent + int64(blocks)*vmaBlock
			}
		}
		archive, err := readVMA(content{bytes.NewReader(data), int64(len(data))})
		if err != nil {
			return
		}
		for name, device := range archive.devices {
			for _, at := range []int64{0, device.size / 2, max(device.size-1, 0)} {
				part := make([]byte, 1)
				n, err := device.ReadAt(part, at)
				if name != vmaState && (n == 1) != (at < device.size) || n == 1 && err != nil {
					t.Errorf("%s at %d of %d: %d, %v", name, at, device.size, n, err)
				}
			}
		}
	})
}
