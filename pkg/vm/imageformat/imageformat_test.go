package imageformat

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const testSize = 8 << 20

// converted makes an image with some data in it with qemu-img.
func converted(t testing.TB, args ...string) []byte {
	t.Helper()
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Skip("qemu-img is not here")
	}
	dir := t.TempDir()
	raw, name := filepath.Join(dir, "raw"), filepath.Join(dir, "image")
	data := make([]byte, testSize)
	copy(data[1<<20:], bytes.Repeat([]byte("data"), 1<<12))
	if err := os.WriteFile(raw, data, 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"convert", "-f", "raw"}, args...)
	if out, err := exec.Command("qemu-img", append(args, raw, name)...).CombinedOutput(); err != nil {
		t.Fatalf("qemu-img %v: %v: %s", args, err, out)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// samples are good images of every format, by name.
func samples(t testing.TB) map[string][]byte {
	return map[string][]byte{
		"qcow2":              converted(t, "-O", "qcow2"),
		"qcow2 of version 2": converted(t, "-O", "qcow2", "-o", "compat=0.10"),
		"qcow2 with zstd":    converted(t, "-c", "-O", "qcow2", "-o", "compression_type=zstd"),
		"qcow2 extended":     converted(t, "-O", "qcow2", "-o", "extended_l2=on"),
		"vmdk":               converted(t, "-O", "vmdk"),
		"vmdk of a stream":   converted(t, "-O", "vmdk", "-o", "subformat=streamOptimized"),
		"vmdk with a footer": footed(converted(t, "-O", "vmdk", "-o", "subformat=streamOptimized")),
		"vhd":                converted(t, "-O", "vpc", "-o", "force_size=on"),
		"vhd fixed":          converted(t, "-O", "vpc", "-o", "force_size=on,subformat=fixed"),
		"vhdx":               converted(t, "-O", "vhdx"),
	}
}

func TestCheck(t *testing.T) {
	for name, data := range samples(t) {
		t.Run(name, func(t *testing.T) {
			want := Format(strings.Fields(name)[0])
			got, err := Detect(data[:min(len(data), HeadSize)])
			if name == "vhd fixed" { // it has no header, only a footer
				if got != Raw || err != nil {
					t.Errorf("detected as %s, %v", got, err)
				}
			} else if got != want || err != nil {
				t.Errorf("detected as %s, %v", got, err)
			}
			info, err := Check(bytes.NewReader(data), int64(len(data)), want)
			if err != nil || info.VirtualSize != testSize {
				t.Errorf("%+v, %v", info, err)
			}
			if _, err := Early(data[:min(len(data), HeadSize)], want); err != nil {
				t.Errorf("its beginning: %v", err)
			}
			// Cut anywhere nothing panics, and without its header it is no image.
			for n := 0; n < min(len(data), HeadSize); n += 253 {
				if _, err := Check(bytes.NewReader(data[:n]), int64(n), want); err == nil && n < sector {
					t.Errorf("taken with %d bytes", n)
				}
			}
		})
	}
	if info, err := Check(bytes.NewReader(make([]byte, 5)), 5, Raw); err != nil || info.VirtualSize != 5 {
		t.Errorf("raw: %+v, %v", info, err)
	}
	if _, err := Check(bytes.NewReader(nil), 0, "vdi"); err == nil {
		t.Error("a format that is not known is taken")
	}
}

// Each image that is made to lead elsewhere, or whose header is wrong, is refused by name, and mostly by its beginning
// alone.
func TestRefused(t *testing.T) {
	good := samples(t)
	change := func(name string, at int, text string) []byte {
		data := bytes.Clone(good[name])
		copy(data[at:], text)
		return data
	}
	// cut has only the first byte of what starts at the sector that is written there.
	cut := func(name string, at int) []byte {
		return good[name][:little.Uint64(good[name][at:])*sector+1]
	}
	replaced := func(name, old, text string) []byte {
		if !bytes.Contains(good[name], []byte(old)) {
			t.Fatalf("%s has no %q", name, old)
		}
		return bytes.Replace(good[name], []byte(old), []byte(text), 1)
	}
	vhdKind := func(kind byte) []byte {
		data := bytes.Clone(good["vhd"])
		old := data[63]
		data[63] = kind
		big.PutUint32(data[64:], big.Uint32(data[64:])+uint32(old)-uint32(kind))
		return data
	}
	dir := t.TempDir()
	base, over := filepath.Join(dir, "base"), filepath.Join(dir, "over")
	for _, args := range [][]string{
		{"create", "-q", "-f", "vhdx", base, "8M"},
		{"create", "-q", "-f", "qcow2", "-b", base, "-F", "vhdx", over},
	} {
		if out, err := exec.Command("qemu-img", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	backed, err := os.ReadFile(over)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		format Format
		data   []byte
		want   string
		late   bool // only the whole image shows it
	}{
		"backing file":          {QCOW2, backed, "backing file", false},
		"backing file, by hand": {QCOW2, change("qcow2", 14, "\x10"), "backing file", false},
		"data file":             {QCOW2, change("qcow2", 79, "\x04"), "external file", false},
		"marked corrupt":        {QCOW2, change("qcow2", 79, "\x02"), "qemu-img check", false},
		"unknown feature":       {QCOW2, change("qcow2", 72, "\x80"), "not known here", false},
		"encrypted":             {QCOW2, change("qcow2", 35, "\x02"), "encrypted", false},
		"snapshots":             {QCOW2, change("qcow2", 63, "\x11"), "17 internal snapshots", false},
		"version":               {QCOW2, change("qcow2", 7, "\x09"), "version 9", false},
		"cluster size":          {QCOW2, change("qcow2", 23, "\x40"), "clusters of 2^64", false},
		"first table too small": {QCOW2, change("qcow2", 24, "\x00\x00\x01"), "first table", false},
		"disk of any size":      {QCOW2, change("qcow2", 24, "\xff\xff"), "corrupt header: a disk of", false},
		"first table elsewhere": {QCOW2, change("qcow2", 40, "\x00\x00\x10"), "not in the file", true},
		"refcounts elsewhere":   {QCOW2, change("qcow2", 48, "\x00\x00\x10"), "not in the file", true},
		"refcounts too large":   {QCOW2, change("qcow2", 56, "\x10"), "reference counts of", false},
		"header length":         {QCOW2, change("qcow2", 100, "\x7f"), "header of", false},
		"data file, extended":   {QCOW2, change("qcow2", 112, "DATA\x00\x00\x00\x08/etc/pwd"), "external file", false},
		"LUKS by extension":     {QCOW2, change("qcow2", 112, "\x05\x37\xbe\x77\x00\x00\x00\x10"), "encrypted", false},
		"no disk":               {QCOW2, change("qcow2", 24, "\x00\x00\x00\x00\x00\x00\x00\x00"), "no size", true},
		"extents elsewhere":     {VMDK, change("vmdk", 12, "\x00\x00\x00\x00\x00\x00\x00\x00"), "other files", false},
		"flat": {
			VMDK, replaced("vmdk", `createType="monolithicSparse"`, `createType="twoGbMaxExtent"  `), "other files",
			false,
		},
		"parent": {
			VMDK, replaced("vmdk", "createType=\"monolithicSparse\"", "parentFileNameHint=\"/etc/x\""), "parent", false,
		},
		"parent by content":    {VMDK, replaced("vmdk", "parentCID=ffffffff", "parentCID=12345678"), "parent", false},
		"grain":                {VMDK, change("vmdk", 20, "\x03"), "grains of", false},
		"no entries of tables": {VMDK, change("vmdk", 44, "\x00\x00\x00\x00"), "grain tables of 0", false},
		"entries of tables":    {VMDK, change("vmdk", 44, "\x01\x02"), "grain tables of 513", false},
		"directory cut":        {VMDK, cut("vmdk", 56), "its directory is not in the file", true},
		"second directory cut": {VMDK, change("vmdk", 48, "\xff\xff\xff"), "its directory is not in the file", true},
		"flat, the file's name": {
			VMDK, replaced("vmdk", "RW ", "RW 1 FLAT \"/etc/shadow\" 0 "), `is in other files ("/etc/shadow"): `, false,
		},
		"footer":               {VMDK, footed(good["vmdk of a stream"])[:2<<10], "corrupt header", true},
		"footer, other disk":   {VMDK, footerOf(good["vmdk of a stream"]), "footer says something else", true},
		"differencing":         {VHD, vhdKind(4), "differencing", false},
		"checksum":             {VHD, change("vhd", 50, "\x7f"), "checksum", false},
		"fixed with a header":  {VHD, vhdKind(2), "type 2", false},
		"fixed too short":      {VHD, good["vhd fixed"][testSize/2:], "is not in a file", true},
		"no footer":            {VHD, make([]byte, 4096), "no footer", true},
		"parent of VHDX":       {VHDX, replaced("vhdx", string(vhdxSize), string(vhdxParent)), "differencing", true},
		"no metadata":          {VHDX, replaced("vhdx", string(vhdxMetadata), "0123456789abcdef"), "no metadata", true},
		"no parameters":        {VHDX, replaced("vhdx", string(vhdxParameters), "0123456789abcdeF"), "blocks", true},
		"no table of metadata": {VHDX, replaced("vhdx", "metadata", "meta----"), "table of metadata", true},
		"no table of regions":  {VHDX, change("vhdx", vhdxRegions, "none"), "table of regions", true},
		"metadata not there":   {VHDX, bytes.Clone(good["vhdx"][:256<<10]), "ends too early", true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Check(bytes.NewReader(test.data), int64(len(test.data)), test.format)
			var refused *RefusedError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
			_, early := Early(test.data[:min(len(test.data), HeadSize)], test.format)
			if (early == nil) != test.late {
				t.Errorf("its beginning: %v", early)
			}
		})
	}
}

// footed is a VMDK that says in its footer where its directory is, as those are that were written as a stream.
func footed(data []byte) []byte {
	header := bytes.Clone(data[:sector])
	data = bytes.Clone(data)
	little.PutUint64(data[56:], vmdkAtEnd)
	return slices.Concat(data, make([]byte, sector), header, make([]byte, sector))
}

// footerOf has a footer that says that the disk is larger.
func footerOf(data []byte) []byte {
	data = footed(data)
	data[len(data)-vmdkFooter+15] = 1
	return data
}

func TestDetect(t *testing.T) {
	for head, want := range map[string]string{
		"# Disk DescriptorFile\nversion=1\n":                   "other files: ",
		"# Disk DescriptorFile\nRW 9 FLAT \"a-flat.vmdk\" 0\n": `other files ("a-flat.vmdk"): `,
		strings.Repeat("\x00", 257) + "ustar":                  "tar archive",
		"PK\x03\x04":                                           "ZIP",
		"COWD":                                                 "VMDK of version 3",
		"QED\x00":                                              "QED",
		strings.Repeat("\x00", 64) + "\x7f\x10\xda\xbe":        "VDI",
	} {
		if format, err := Detect([]byte(head)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %s, %v; want %q", head, format, err, want)
		}
	}
	if format, err := Detect([]byte("\xeb\x3c\x90 a boot sector")); format != Raw || err != nil {
		t.Errorf("%s, %v", format, err)
	}
	for head, want := range map[string]Compression{
		"\x1f\x8b\x08": Gzip, "\xfd7zXZ\x00\x00": XZ, "\x28\xb5\x2f\xfd": Zstd, "QFI\xfb": None, "": None,
	} {
		if got := CompressionOf([]byte(head)); got != want {
			t.Errorf("%q: %q", head, got)
		}
	}
}

// FuzzCheck feeds images: none makes a check panic, and one that is taken has a disk of a size that can be.
func FuzzCheck(f *testing.F) {
	for _, data := range samples(f) {
		f.Add(data[:min(len(data), HeadSize)])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		format, err := Detect(data)
		if err != nil {
			return
		}
		for _, as := range append([]Format{format}, Formats...) {
			if info, err := Check(bytes.NewReader(data), int64(len(data)), as); err == nil &&
				(info.VirtualSize <= 0 || info.VirtualSize > 1<<60) {
				t.Errorf("%+v", info)
			}
			if _, err := Early(data, as); err != nil {
				if _, whole := Check(bytes.NewReader(data), int64(len(data)), as); whole == nil {
					t.Errorf("%s: refused by its beginning (%v) and taken as a whole", as, err)
				}
			}
		}
	})
}
