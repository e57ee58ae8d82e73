package exporter

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/imageformat"
	"github.com/virtkit/virtkit/pkg/vm/ovf"
)

var created = time.Unix(1_700_000_000, 0)

// vmOf is a VM with volumes, each CLAIM or, in a CD drive, CLAIM/cd.
func vmOf(volumes ...string) *v1.VirtualMachine {
	vm := &v1.VirtualMachine{}
	vm.Kind, vm.Name = "VirtualMachine", "box"
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
	spec := &vm.Spec.Template.Spec
	for i, volume := range volumes {
		claim, cd := strings.CutSuffix(volume, "/cd")
		name := fmt.Sprintf("v%d", i)
		source := &v1.PersistentVolumeClaimVolumeSource{}
		source.ClaimName = claim
		spec.Volumes = append(spec.Volumes,
			v1.Volume{Name: name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: source}})
		if cd {
			spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks,
				v1.Disk{Name: name, DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{}}})
		}
	}
	return vm
}

// newOVA is an export of a VM with claims a, b, … that are disks with these contents.
func newOVA(t *testing.T, vm *v1.VirtualMachine, disks map[string][]byte) *export {
	t.Helper()
	e := newExport(t)
	for claim, data := range disks {
		if err := os.MkdirAll(filepath.Join(e.root, "claims", claim), 0o700); err != nil {
			t.Fatal(err)
		}
		e.write(filepath.Join("claims", claim, "disk.img"), string(data))
	}
	manifests, err := json.Marshal(map[string]any{"items": []any{map[string]string{"kind": "ConfigMap"}, vm}})
	if err != nil {
		t.Fatal(err)
	}
	e.write("manifests/all.json", string(manifests))
	e.again(disks)
	return e
}

// again begins the server anew, as after an eviction.
func (e *export) again(disks map[string][]byte) {
	o := e.Handler.(*handler).Options
	o.Created = created
	o.Volumes = []Volume{{"tree", e.files, tree}}
	for claim := range disks {
		o.Volumes = append(o.Volumes, Volume{claim, filepath.Join(e.root, "claims", claim), disk})
	}
	e.Handler = NewHandler(o)
}

// unpackOVA returns the members of an OVA, and fails unless they are in the order of DSP0243 and as the manifest says.
func unpackOVA(t *testing.T, ova string) (order []string, members map[string][]byte) {
	t.Helper()
	members = map[string][]byte{}
	in := tar.NewReader(strings.NewReader(ova))
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag != tar.TypeReg || header.Mode != 0o644 || !header.ModTime.Equal(created) ||
			header.Format != tar.FormatUSTAR {
			t.Errorf("%+v", header)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		order = append(order, header.Name)
		members[header.Name] = data
	}
	var manifest strings.Builder
	for _, name := range order {
		if !strings.HasSuffix(name, ".mf") {
			fmt.Fprintf(&manifest, "SHA256(%s)= %x\n", name, sha256.Sum256(members[name]))
		}
	}
	if len(order) < 2 || order[1] != "box.mf" || string(members["box.mf"]) != manifest.String() {
		t.Errorf("%v, manifest\n%s\nwant\n%s", order, members["box.mf"], manifest.String())
	}
	return order, members
}

// readVMDK has QEMU read an image.
func readVMDK(t *testing.T, vmdk []byte) []byte {
	t.Helper()
	dir := t.TempDir()
	image, raw := filepath.Join(dir, "vmdk"), filepath.Join(dir, "raw")
	if err := os.WriteFile(image, vmdk, 0o600); err != nil {
		t.Fatal(err)
	}
	if said := qemuImg(t, "check", "-f", "vmdk", image); !strings.Contains(said, "No errors were found") {
		t.Error(said)
	}
	if said := qemuImg(t, "info", "-f", "vmdk", image); !strings.Contains(said, "create type: streamOptimized") {
		t.Error(said)
	}
	qemuImg(t, "convert", "-f", "vmdk", "-O", "raw", image, raw)
	data, err := os.ReadFile(raw)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A VM with disks of all sizes and kinds of content, one in a CD drive, is an OVA: the descriptor, a manifest that
// fits, and images that QEMU and our own import read as the disks were. What is a file system is none of it, and is
// said.
func TestOVA(t *testing.T) {
	sizes := map[string]int64{"a": 512, "b": 65537, "c": 3<<20 + 700, "d": 100 << 20, "e": 32 << 20}
	disks := map[string][]byte{}
	for claim, size := range sizes {
		disks[claim] = content(size)
	}
	clear(disks["d"][2<<20 : 70<<20]) // tables without a grain
	e := newOVA(t, vmOf("a", "tree", "b", "c/cd", "d", "e", "of-no-export"), disks)
	r := e.get(names.ExportOVA)
	got := body(t, r)
	if r.StatusCode != http.StatusOK || r.Header.Get("Content-Length") != strconv.Itoa(len(got)) ||
		len(got)%512 != 0 {
		t.Fatalf("%d %v: %d bytes", r.StatusCode, r.Header, len(got))
	}
	left := r.Header.Values(names.HeaderNotIncluded)
	if len(left) != 2 || !strings.HasPrefix(left[0], "volume v1,") || !strings.HasPrefix(left[1], "volume v6,") {
		t.Errorf("not included: %q", left)
	}
	order, members := unpackOVA(t, got)
	want := "box.ovf box.mf box-disk1.vmdk box-disk2.vmdk box-disk3.iso box-disk4.vmdk box-disk5.vmdk"
	if strings.Join(order, " ") != want {
		t.Fatalf("%v", order)
	}
	if !bytes.Equal(members["box-disk3.iso"], disks["c"]) {
		t.Error("what is in the CD drive is not as it was")
	}
	for file, claim := range map[string]string{
		"box-disk1.vmdk": "a", "box-disk2.vmdk": "b", "box-disk4.vmdk": "d", "box-disk5.vmdk": "e",
	} {
		image, want := members[file], disks[claim]
		size := up(int64(len(want)), 512) * 512
		found, err := imageformat.Check(bytes.NewReader(image), int64(len(image)), imageformat.VMDK)
		if err != nil || found.VirtualSize != size {
			t.Errorf("%s: our own import reads %+v: %v", file, found, err)
		}
		read := readVMDK(t, image)
		if int64(len(read)) != size || !bytes.Equal(read[:len(want)], want) ||
			len(bytes.Trim(read[len(want):], "\x00")) > 0 {
			t.Errorf("%s: QEMU reads %d bytes, and not the same", file, len(read))
		}
		if size > 10<<20 && len(image)*3 > len(want)*2 {
			t.Errorf("%s: %d bytes, of which most are alike, take %d", file, len(want), len(image))
		}
	}
}

// The OVA is the same by whatever ranges it comes, also from a server that has measured the disks anew.
func TestOVARanges(t *testing.T) {
	disks := map[string][]byte{"a": content(35 << 20), "b": content(1 << 20)}
	e := newOVA(t, vmOf("a", "b/cd"), disks)
	whole := e.get(names.ExportOVA)
	want, tag := body(t, whole), whole.Header.Get("ETag")
	random := mathrand.New(mathrand.NewPCG(3, 4))
	for n := range 60 {
		if n%20 == 0 {
			e.again(disks)
		}
		from := random.IntN(len(want))
		to := min(from+random.IntN(200000), len(want)-1)
		r := e.get(names.ExportOVA, fmt.Sprintf("Range: bytes=%d-%d", from, to), "If-Match: "+tag)
		if got := body(t, r); r.StatusCode != http.StatusPartialContent || got != want[from:to+1] {
			t.Fatalf("bytes %d to %d: %d, %d bytes", from, to, r.StatusCode, len(got))
		}
	}
	// The same content on another disk is the same; another content is not.
	e.write("claims/a/disk.img", string(disks["a"]))
	if r := e.get(names.ExportOVA, "Range: bytes=5-", "If-Match: "+tag); r.StatusCode != http.StatusPartialContent ||
		body(t, r) != want[5:] {
		t.Errorf("of the same content: %d", r.StatusCode)
	}
	disks["a"][7] ^= 1
	e.write("claims/a/disk.img", string(disks["a"]))
	if r := e.get(names.ExportOVA, "Range: bytes=5-", "If-Match: "+tag); r.StatusCode != http.StatusPreconditionFailed {
		t.Errorf("of another content: %d", r.StatusCode)
	}
	// Both kinds of images are served in turn.
	if r := e.get("/volumes/a/disk.qcow2"); r.StatusCode != http.StatusOK || len(body(t, r)) == 0 {
		t.Errorf("as qcow2: %d", r.StatusCode)
	}
	if r := e.get(names.ExportOVA); r.StatusCode != http.StatusOK || r.Header.Get("ETag") == tag {
		t.Errorf("after that: %d", r.StatusCode)
	}
}

// A disk that changes after it was measured has no good end.
func TestOVAChanges(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "disk")
	data := bytes.Repeat([]byte("compressible"), 1<<18)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	i := &image{File: file, size: info.Size(), info: info}
	l, err := measureVMDK(t.Context(), file, i.size, "disk.vmdk", sha256.New())
	if err != nil {
		t.Fatal(err)
	}
	whole, sum := newArchive([]piece{newVMDK(l, i)}), sha256.New()
	n, err := io.Copy(sum, struct{ io.Reader }{whole})
	again := sha256.New()
	if _, err := measureVMDK(t.Context(), file, i.size, "disk.vmdk", again); err != nil {
		t.Fatal(err)
	}
	if err != nil || n != l.end() || hex.EncodeToString(sum.Sum(nil)) != hex.EncodeToString(again.Sum(nil)) {
		t.Errorf("%d bytes of %d: %v", n, l.end(), err)
	}
	for name, change := range map[string]func(){
		"another grain": func() { copy(data[1<<20:], content(1<<16)) },
		"the last byte": func() { data[len(data)-1] ^= 1 },
	} {
		change()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, info.ModTime(), info.ModTime().Add(1)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, newArchive([]piece{newVMDK(l, i)})); !errors.Is(err, errChanged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := measureVMDK(ctx, file, i.size, "disk.vmdk", sha256.New()); !errors.Is(err, context.Canceled) {
		t.Errorf("of who has gone: %v", err)
	}
	if _, err := (&machine{vmOf(), nil, nil}).measureOVA(ctx, nil, created); err != nil {
		t.Errorf("of no disk: %v", err)
	}
}

// What cannot be an OVA is refused with a sentence that says why, and what can be had instead.
func TestNoOVA(t *testing.T) {
	pinned := vmOf("a")
	pinned.Spec.Instancetype = &v1.InstancetypeMatcher{Name: "gone"}
	for name, c := range map[string]struct {
		vm   *v1.VirtualMachine
		size int64
		code int
		want string
	}{
		"too large": {vmOf("a"), maxOVA + 1, http.StatusUnprocessableEntity, "too large to be served as OVA"},
		"no type":   {pinned, 1, http.StatusUnprocessableEntity, "instance type or preference is not there any more"},
		"no VM":     {&v1.VirtualMachine{}, 1, http.StatusInternalServerError, "have no VM"},
	} {
		e := newOVA(t, c.vm, map[string][]byte{"a": {}})
		if err := os.Truncate(filepath.Join(e.root, "claims", "a", "disk.img"), c.size); err != nil {
			t.Skipf("the file system has no such large files: %v", err)
		}
		r := e.get(names.ExportOVA)
		if got := body(t, r); r.StatusCode != c.code || !strings.Contains(got, c.want) {
			t.Errorf("%s: %d %s", name, r.StatusCode, got)
		}
	}
	e := newOVA(t, vmOf("a"), map[string][]byte{"a": {1}})
	o := e.Handler.(*handler).Options
	o.Manifests = "" // as of a claim
	e.Handler = NewHandler(o)
	if r := e.get(names.ExportOVA); r.StatusCode != http.StatusNotFound {
		t.Errorf("of a claim: %d", r.StatusCode)
	}
}

// A member of more than 8 GiB has the header that other hypervisors write, and a tag of its own.
func TestLargeOVA(t *testing.T) {
	large := &measured{}
	err := large.pack("box", nil, nil, []ovf.Disk{{File: "box-disk1.vmdk", Bytes: 9 << 30}}, created)
	if err != nil {
		t.Fatal(err)
	}
	header, err := tar.NewReader(bytes.NewReader(append(large.heads[0], make([]byte, 1024)...))).Next()
	if err != nil || header.Name != "box.ovf" {
		t.Fatalf("%+v: %v", header, err)
	}
	header, err = tar.NewReader(bytes.NewReader(large.heads[0][2*tarBlock:])).Next()
	if err != nil || header.Size != 9<<30 || header.Format != tar.FormatGNU {
		t.Errorf("%+v: %v", header, err)
	}
}
