package foreign

import (
	"archive/tar"
	"bytes"
	"crypto/sha1" //nolint:gosec // as manifests have it
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/action/backup"
	"github.com/virtkit/virtkit/pkg/vm/imageformat"
)

// descriptor is an OVF with a disk of d.img and a blank one.
const descriptor = `<Envelope>
  <References><File id="f" href="d.img"/></References>
  <DiskSection><Disk diskId="d" fileRef="f" capacity="1048576"/><Disk diskId="b" capacity="2097152"/></DiskSection>
  <VirtualSystem id="box"><VirtualHardwareSection>
    <Item><InstanceID>1</InstanceID><ResourceType>3</ResourceType><VirtualQuantity>1</VirtualQuantity></Item>
    <Item><InstanceID>2</InstanceID><ResourceType>4</ResourceType><VirtualQuantity>256</VirtualQuantity></Item>
    <Item><InstanceID>3</InstanceID><ResourceType>17</ResourceType><HostResource>/disk/d</HostResource></Item>
    <Item><InstanceID>4</InstanceID><ResourceType>17</ResourceType><HostResource>/disk/b</HostResource></Item>
  </VirtualHardwareSection></VirtualSystem>
</Envelope>`

// member is a member of an archive that a test packs.
type member struct {
	tar.Header
	body []byte
}

func file(name, body string) member { return member{tar.Header{Name: name}, []byte(body)} }

// raw is a disk of 1 MiB.
func raw() string { return strings.Repeat("virtkit!", 1<<17) }

// pack writes an archive and returns its path.
func pack(t testing.TB, members ...member) string {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, m := range members {
		header := m.Header
		header.Mode, header.Size = 0o644, int64(len(m.body))
		if header.Typeflag == 0 {
			header.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(&header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(m.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return put(t, "box.ova", out.String())
}

func put(t testing.TB, name, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func sumLine(algorithm, name, body string) string {
	var sum []byte
	switch algorithm {
	case "SHA1":
		s := sha1.Sum([]byte(body)) //nolint:gosec // as manifests have it
		sum = s[:]
	case "SHA256":
		s := sha256.Sum256([]byte(body))
		sum = s[:]
	case "SHA512":
		s := sha512.Sum512([]byte(body))
		sum = s[:]
	}
	return fmt.Sprintf("%s(%s)= %x\n", algorithm, name, sum)
}

// sums is a manifest of the OVF and its disk.
func sums(algorithm string) string {
	return sumLine(algorithm, "box.ovf", descriptor) + sumLine(algorithm, "d.img", raw())
}

// opened opens a file, and closes it with the test.
func opened(t testing.TB, path string) (*File, error) {
	t.Helper()
	f, err := Open(path)
	if err == nil {
		t.Cleanup(func() {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return f, err
}

func nothing(string, int64, int64) {}

// TestArchive reads OVAs of every order and checksum, and directories: what is uploaded is what is in them.
func TestArchive(t *testing.T) {
	directory := t.TempDir()
	for name, body := range map[string]string{"box.ovf": descriptor, "box.mf": sums("SHA256"), "d.img": raw()} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ids := map[string]bool{}
	for name, path := range map[string]string{
		"sha1":       pack(t, file("box.ovf", descriptor), file("box.mf", sums("SHA1")), file("d.img", raw())),
		"sha256":     pack(t, file("d.img", raw()), file("box.ovf", descriptor), file("box.mf", sums("SHA256"))),
		"sha512":     pack(t, file("./box.ovf", descriptor), file("./d.img", raw()), file("./box.mf", sums("SHA512"))),
		"directory":  directory,
		"descriptor": filepath.Join(directory, "box.ovf"),
	} {
		t.Run(name, func(t *testing.T) {
			f, err := opened(t, path)
			if err != nil {
				t.Fatal(err)
			}
			if len(f.Notes) > 0 {
				t.Errorf("notes: %q", f.Notes)
			}
			var last int64
			err = f.Verify(t.Context(), func(_ string, done, total int64) { last = max(last, min(done, total)) })
			if err != nil || last != int64(len(raw())) {
				t.Errorf("verified %d bytes: %v", last, err)
			}
			made, err := f.Make(Wish{Wish: backup.Wish{Namespace: "ns", StorageClass: "fast"}})
			if err != nil {
				t.Fatal(err)
			}
			admitted(t, made.VM)
			checkMade(t, f, made)
			ids[made.Claims[0].Labels[backup.LabelImport]] = true
		})
	}
	if len(ids) != 1 {
		t.Errorf("the same VM has several labels, so that no import goes on with another's claims: %v", ids)
	}
}

// checkMade checks the claims and disks of descriptor.
func checkMade(t *testing.T, f *File, made *backup.Made) {
	t.Helper()
	disks := f.Payloads(made)
	if len(disks) != 2 || len(made.Claims) != 2 {
		t.Fatalf("%d disks, %d claims", len(disks), len(made.Claims))
	}
	for i, want := range []struct {
		name, size string
		bytes      int64
	}{{"box-disk1", "66Mi", 1 << 20}, {"box-disk2", "67Mi", 0}} {
		claim := made.Claims[i]
		size := claim.Spec.Resources.Requests["storage"]
		if claim.Name != want.name || size.String() != want.size || claim.Namespace != "ns" ||
			*claim.Spec.StorageClassName != "fast" || disks[i].Image.Size != want.bytes {
			t.Errorf("claim %d is %s of %s, for %d bytes; want %+v", i, claim.Name, size.String(), disks[i].Image.Size,
				want)
		}
	}
	if disks[0].SHA256 != fmt.Sprintf("%x", sha256.Sum256([]byte(raw()))) {
		t.Errorf("the checksum of the disk is %s", disks[0].SHA256)
	}
	body := make([]byte, len(raw()))
	if _, err := disks[0].Image.ReadAt(body, 0); err != nil || string(body) != raw() {
		t.Errorf("the disk is not what is in the file: %v", err)
	}
}

// TestHostileArchives tries archives that must not be read further, each with what is said.
func TestHostileArchives(t *testing.T) {
	ovf, disk := file("box.ovf", descriptor), file("d.img", raw())
	linked := func(header tar.Header) member { return member{header, nil} }
	whole, err := os.ReadFile(pack(t, ovf, disk))
	if err != nil {
		t.Fatal(err)
	}
	for want, path := range map[string]string{
		"leads out of the archive": pack(t, ovf, file("../d.img", raw())),
		`"/d.img" leads out`:       pack(t, ovf, file("/d.img", raw())),
		"is in the archive twice":  pack(t, ovf, disk, disk),
		"but a link or a device": pack(t, ovf,
			linked(tar.Header{Name: "d.img", Typeflag: tar.TypeSymlink, Linkname: "/etc/shadow"})),
		"h.img is not a file": pack(t, ovf,
			linked(tar.Header{Name: "h.img", Typeflag: tar.TypeLink, Linkname: "/etc/shadow"})),
		"c is not a file":          pack(t, ovf, linked(tar.Header{Name: "c", Typeflag: tar.TypeChar})),
		"no .ovf in it":            pack(t, disk),
		"several OVFs":             pack(t, ovf, file("other.ovf", descriptor)),
		"file d.img: file does":    pack(t, ovf),
		"it is not whole":          put(t, "cut.ova", string(whole[:len(whole)/2])),
		"the archive is damaged":   put(t, "bad.ova", strings.Replace(string(whole), "box.ovf", "bux.ovf", 1)),
		"document type":            pack(t, file("box.ovf", "<!DOCTYPE x><Envelope/>"), disk),
		"which are more than such": pack(t, file("box.ovf", strings.Repeat(" ", maxDescriptor+1)), disk),
		"box.mf: it has no check":  pack(t, ovf, disk, file("box.mf", "\n")),
		"mf lists ghost.img":       pack(t, ovf, disk, file("box.mf", sums("SHA1")+sumLine("SHA1", "ghost.img", ""))),
		"is not in the manifest":   pack(t, ovf, disk, file("box.mf", sumLine("SHA1", "d.img", raw()))),
		"the manifest says": pack(t, ovf, disk,
			file("box.mf", sumLine("SHA256", "box.ovf", "other")+sumLine("SHA256", "d.img", raw()))),
		"a backing file": pack(t, ovf, file("d.img", backed())),
	} {
		if _, err := opened(t, path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// backed is the beginning of a qcow2 image with a backing file.
func backed() string {
	head := make([]byte, 4096)
	copy(head, "QFI\xfb")
	binary.BigEndian.PutUint32(head[4:], 3)
	binary.BigEndian.PutUint64(head[8:], 512)
	binary.BigEndian.PutUint32(head[16:], 11)
	return string(head)
}

// TestAltered verifies disks that somebody has changed or left out of the manifest.
func TestAltered(t *testing.T) {
	for want, path := range map[string]string{
		"d.img has the SHA1 checksum": pack(t, file("box.ovf", descriptor), file("box.mf", sums("SHA1")),
			file("d.img", strings.Replace(raw(), "!", "?", 1))),
		"d.img is not in the manifest": pack(t, file("box.ovf", descriptor),
			file("box.mf", sumLine("SHA512", "box.ovf", descriptor)), file("d.img", raw())),
		"notes.txt has the SHA256 checksum": pack(t, file("box.ovf", descriptor), file("d.img", raw()),
			file("notes.txt", "b"), file("box.mf", sums("SHA256")+sumLine("SHA256", "notes.txt", "a"))),
	} {
		f, err := opened(t, path)
		if err != nil {
			t.Error(err)
			continue
		}
		if err := f.Verify(t.Context(), nothing); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// A link in a directory does not lead out of it.
func TestLinkOutOfDirectory(t *testing.T) {
	directory, secret := t.TempDir(), put(t, "secret", raw())
	if err := os.WriteFile(filepath.Join(directory, "box.ovf"), []byte(descriptor), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(directory, "d.img")); err != nil {
		t.Fatal(err)
	}
	if _, err := opened(t, directory); err == nil || !strings.Contains(err.Error(), "escapes") {
		t.Errorf("a link out of the directory is followed: %v", err)
	}
}

func TestManifest(t *testing.T) {
	good := strings.Repeat("0a", 32)
	m, err := parseManifest([]byte(
		"SHA256(a b(c).vmdk)= " + good + "\r\nsha-256 (d) = " + strings.ToUpper(good) + "\n"))
	if err != nil || m.sums["a b(c).vmdk"].sum != good || m.sums["d"].sum != good {
		t.Errorf("%+v: %v", m, err)
	}
	for text, want := range map[string]string{
		"":                      "no checksum",
		"hello":                 "line 1 is no checksum",
		"MD5(a)= 0a":            "only SHA1",
		"SHA256(a)= 0a":         "2 digits",
		"SHA256(../a)= " + good: "leads out",
		"SHA256(/a)= " + good:   "leads out",
		"SHA256(a)= " + good + "\nSHA256(a)= " + strings.Repeat("0b", 32): "twice",
	} {
		if _, err := parseManifest([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

// TestImages makes VMs of single images, and refuses what is none.
func TestImages(t *testing.T) {
	for name, format := range map[string]imageformat.Format{
		"Web Server.img": "raw", "setup.iso": "raw", "x.RAW": "raw",
	} {
		f, err := opened(t, put(t, name, raw()))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		made, err := f.Make(Wish{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		admitted(t, made.VM)
		disk := made.VM.Spec.Template.Spec.Domain.Devices.Disks[0]
		if cd := disk.CDRom != nil; cd != (name == "setup.iso") || f.Payloads(made)[0].Image.Format != format ||
			!strings.Contains(strings.Join(f.Notes, " "), "1 vCPU") {
			t.Errorf("%s: disk %+v, %v, %q", name, disk, f.Payloads(made)[0].Image.Format, f.Notes)
		}
	}
	for name, test := range map[string]struct{ body, want string }{
		"notes.txt": {raw(), "neither what"}, "empty.img": {"", "empty"}, "a.img": {"\x1f\x8b", "gzip"},
		"b.qcow2": {backed(), "backing file"}, "c.vdi": {strings.Repeat("\x00", 64) + "\x7f\x10\xda\xbe", "VDI"},
		"d.xml": {"<html/>", `root is "html"`}, "e.vmdk": {"# Disk DescriptorFile\n", "in other files"},
	} {
		if _, err := opened(t, put(t, name, test.body)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}

// TestDomainDisks finds the disks of a domain where it says, and beside it.
func TestDomainDisks(t *testing.T) {
	domain := func(disk string) string {
		return "<domain><name>a</name><devices><disk type='file'><source file='" + disk +
			"'/><target dev='vda' bus='virtio'/></disk></devices></domain>"
	}
	disk := put(t, "a.img", raw())
	beside := put(t, "a.xml", domain("/nowhere/b.img"))
	if err := os.WriteFile(filepath.Join(filepath.Dir(beside), "b.img"), []byte(raw()), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		put(t, "a.xml", domain(disk)): disk, beside: filepath.Join(filepath.Dir(beside), "b.img"),
	} {
		f, err := opened(t, path)
		if err != nil {
			t.Error(err)
			continue
		}
		made, err := f.Make(Wish{})
		if err != nil {
			t.Fatal(err)
		}
		if f.Notes[0] != "a disk is read from "+want || f.Payloads(made)[0].Image.Format != imageformat.Raw {
			t.Errorf("%q, %+v", f.Notes, f.Payloads(made)[0].Image)
		}
	}
	_, err := opened(t, put(t, "c.xml", domain("/nowhere/c.img")))
	if err == nil || !strings.Contains(err.Error(), "copy it there") {
		t.Errorf("a disk that is not there: %v", err)
	}
	_, err = opened(t, put(t, "d.xml", domain(t.TempDir())))
	if err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a disk that is a directory: %v", err)
	}
	// What a guest has written at the beginning of a raw disk does not make it another format.
	f, err := opened(t, put(t, "e.xml", domain(put(t, "e.img", backed()))))
	if err != nil || f.images[0].format != imageformat.Raw {
		t.Errorf("a raw disk with a header: %v", err)
	}
	var unknown *UnknownError
	if _, err := opened(t, put(t, "f", "what")); !errors.As(err, &unknown) {
		t.Errorf("what nobody knows: %v", err)
	}
}

// FuzzManifest reads manifests. Each name in one is of a file of the archive.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(sums("SHA1")))
	f.Add([]byte("SHA512 (a)= 00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parseManifest(text)
		if err != nil {
			return
		}
		for name, sum := range m.sums {
			if !filepath.IsLocal(name) || len(sum.sum) != 2*algorithms[sum.algorithm]().Size() {
				t.Errorf("%q has %+v", name, sum)
			}
		}
	})
}

// FuzzArchive reads what is called an OVA.
func FuzzArchive(f *testing.F) {
	for _, path := range []string{
		pack(f, file("box.ovf", descriptor), file("box.mf", sums("SHA256")), file("d.img", raw()[:1<<10])),
		pack(f, file("../d.img", "a")),
	} {
		body, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		members, err := readTar(content{bytes.NewReader(body), int64(len(body))})
		if err != nil {
			return
		}
		for name, in := range members {
			text, err := in.read(int64(len(body)))
			if err != nil || int64(len(text)) != in.size || !filepath.IsLocal(name) {
				t.Errorf("%q has %d of %d bytes: %v", name, len(text), in.size, err)
			}
		}
	})
}
