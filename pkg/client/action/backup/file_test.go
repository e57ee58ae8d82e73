package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

// memory is a Storage.
type memory struct{ data []byte }

func (m *memory) WriteAt(p []byte, at int64) (int, error) {
	if end := at + int64(len(p)); end > int64(len(m.data)) {
		m.data = append(m.data, make([]byte, end-int64(len(m.data)))...)
	}
	return copy(m.data[at:], p), nil
}

func (m *memory) Truncate(size int64) error {
	if size > int64(len(m.data)) {
		_, err := m.WriteAt([]byte{0}, size-1)
		return err
	}
	m.data = m.data[:size]
	return nil
}

// exampleVM has a root disk and data on claims, one of them a DataVolume's, a file system, and cloud-init's volume.
func exampleVM() *v1.VirtualMachine {
	vm := &v1.VirtualMachine{
		TypeMeta: metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachine"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "demo", Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{"virtkit.io/renamed-from": "older", "mine": "1"},
		},
		Spec: v1.VirtualMachineSpec{
			RunStrategy:         new(v1.RunStrategyRerunOnFailure),
			DataVolumeTemplates: []v1.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: "demo-root"}}},
			Template: &v1.VirtualMachineInstanceTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"virtkit.io/known-as": "oldest"}},
			},
		},
	}
	guest := &vm.Spec.Template.Spec
	guest.Domain.Firmware = &v1.Firmware{UUID: "u", Serial: "s"}
	guest.Domain.Devices.Interfaces = []v1.Interface{{Name: "default", MacAddress: "02:00:00:00:00:01"}}
	guest.Domain.Devices.Disks = []v1.Disk{{Name: "root"}, {Name: "data"}, {Name: "init"}, {Name: "lost"}}
	guest.Domain.Devices.Filesystems = []v1.Filesystem{{Name: "share", Virtiofs: &v1.FilesystemVirtiofs{}}}
	claim := func(name string) v1.VolumeSource {
		source := &v1.PersistentVolumeClaimVolumeSource{Hotpluggable: true}
		source.ClaimName = name
		return v1.VolumeSource{PersistentVolumeClaim: source}
	}
	guest.Volumes = []v1.Volume{
		{Name: "root", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "demo-root"}}},
		{Name: "data", VolumeSource: claim("data")},
		{Name: "share", VolumeSource: claim("share")},
		{Name: "lost", VolumeSource: claim("lost")},
		{Name: "init", VolumeSource: v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserData: "x"}}},
	}
	return vm
}

func packed(data string) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = io.WriteString(w, data) // to memory
	_ = w.Close()
	return out.Bytes()
}

// example is a file with exampleVM and two of its disks.
func example(t testing.TB, change func(*Index)) []byte {
	t.Helper()
	file := &memory{}
	w := NewWriter(file, time.Unix(1e9, 0), 3)
	index := &Index{Namespace: "shop", Name: "demo", Snapshot: "s", NotIncluded: []string{"volume share"}}
	var err error
	if index.VM, err = writeVM(w, exampleVM()); err != nil {
		t.Fatal(err)
	}
	for _, pair := range [][2]string{{"root", "demo-root"}, {"data", "data"}} {
		volume, claim := pair[0], pair[1]
		disk := Disk{
			Volume: volume, Claim: claim, Format: FormatRaw, Compression: CompressionGzip, DiskSize: 60 << 20,
			ClaimSize: "64Mi", AccessModes: []string{"ReadWriteMany"}, VolumeMode: "Block", StorageClass: "fast",
		}
		entry := w.Entry(diskFile(volume))
		for range 2 { // as a download that begins anew
			if err := entry.Begin(); err != nil {
				t.Fatal(err)
			}
			if _, err := entry.Write(packed("content of " + volume)); err != nil {
				t.Fatal(err)
			}
		}
		if disk.Member, err = entry.End(); err != nil {
			t.Fatal(err)
		}
		index.Disks = append(index.Disks, disk)
	}
	if change != nil {
		change(index)
	}
	size, err := w.Finish(index)
	if err != nil {
		t.Fatal(err)
	}
	if size != int64(len(file.data)) {
		t.Errorf("it says that it has %d bytes, and has %d", size, len(file.data))
	}
	return file.data
}

func open(data []byte) (*File, error) { return Open(bytes.NewReader(data), int64(len(data))) }

func verify(f *File) error { return f.Verify(context.Background(), func(string, int64, int64) {}) }

// What was written is read again, by this package and by tar, gzip and sha256sum.
func TestRoundTrip(t *testing.T) {
	data := example(t, nil)
	f, err := open(data)
	if err != nil {
		t.Fatal(err)
	}
	if f.Index.Namespace != "shop" || f.Index.Name != "demo" || len(f.Index.Disks) != 2 || f.VM.Name != "demo" ||
		!f.Index.Created.Equal(time.Unix(1e9, 0)) {
		t.Errorf("%+v", f.Index)
	}
	for i := range f.Index.Disks {
		unpacked, err := gzip.NewReader(f.disk(i))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(unpacked); err != nil || string(got) != "content of "+f.Index.Disks[i].Volume {
			t.Errorf("disk %d: %q, %v", i, got, err)
		}
	}
	if err := verify(f); err != nil {
		t.Error(err)
	}
	in := tar.NewReader(bytes.NewReader(data))
	sums, wanted := map[string]string{}, ""
	var order []string
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		order = append(order, header.Name)
		if header.Name == sumsFile {
			wanted = string(text)
			continue
		}
		sums[header.Name] = sumOf(text)
	}
	if len(order) != 5 || order[0] != indexFile || order[1] != vmFile || order[4] != sumsFile {
		t.Errorf("members %v", order)
	}
	for name, sum := range sums {
		if !strings.Contains(wanted, sum+"  "+name+"\n") {
			t.Errorf("%s lacks %s of %s", wanted, sum, name)
		}
	}
}

// A file that is cut anywhere, or of which any byte is changed, is refused before its disks are read, or by Verify.
func TestAltered(t *testing.T) {
	data := example(t, nil)
	for end := 0; end < len(data); end += 1999 {
		if f, err := open(data[:end]); err == nil {
			t.Errorf("cut at %d of %d: %+v", end, len(data), f.Index)
		}
	}
	whole, err := open(data)
	if err != nil {
		t.Fatal(err)
	}
	last := int64(len(data))
	changed := bytes.Clone(data)
	refused := map[bool]int{}
	for at := int64(0); at < last; at += 13 {
		if at > 2000 && at < whole.starts[0]-2000 && at%1009 > 13 {
			continue // the room behind the index
		}
		changed[at] ^= 0x10
		f, err := open(changed)
		if err == nil {
			err = verify(f)
		}
		if err == nil && !harmless(data, at) {
			t.Errorf("byte %d was changed", at)
		}
		refused[err != nil]++
		changed[at] = data[at]
	}
	if refused[true] < 100 {
		t.Errorf("of the changes %v were refused", refused)
	}
	if _, err := open(append(bytes.Clone(data), 0)); err == nil || !strings.Contains(err.Error(), "1 bytes more") {
		t.Errorf("with more at its end: %v", err)
	}
}

// harmless reports a byte that is none of a member's: of a header, whose own checksum may allow for it, or the zeros
// after a member.
func harmless(data []byte, at int64) bool {
	in := bytes.NewReader(data)
	for r := tar.NewReader(in); ; {
		header, err := r.Next()
		if err != nil {
			return true
		}
		start := int64(len(data)) - int64(in.Len())
		if at < start {
			return true
		}
		if at < start+header.Size {
			return false
		}
	}
}

// An index that no export writes is refused, with what is wrong in it.
func TestHostileIndex(t *testing.T) {
	valid := func() map[string]any {
		f, err := open(example(t, nil))
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(f.Index)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]any{}
		if err := json.Unmarshal(text, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	disk := func(index map[string]any) map[string]any { return index["disks"].([]any)[0].(map[string]any) }
	for want, change := range map[string]func(map[string]any){
		"its kind is": func(x map[string]any) { x["kind"] = "Backups" },
		"use a newer": func(x map[string]any) { x["apiVersion"] = "backup.virtkit.io/v2" },
		"name:":       func(x map[string]any) { x["name"] = "../x" },
		"namespace:":  func(x map[string]any) { x["namespace"] = "a/b" },
		"vm.file:":    func(x map[string]any) { x["vm"].(map[string]any)["file"] = "/etc/passwd" },
		"vm.bytes:":   func(x map[string]any) { x["vm"].(map[string]any)["bytes"] = 1 << 40 },
		"vm.sha256:":  func(x map[string]any) { x["vm"].(map[string]any)["sha256"] = "" },
		"no size of a member": func(x map[string]any) {
			disk(x)["bytes"] = -1
		},
		"volume:":      func(x map[string]any) { disk(x)["volume"] = "../../x" },
		"file:":        func(x map[string]any) { disk(x)["file"] = "disks/other.img.gz" },
		"claim:":       func(x map[string]any) { disk(x)["claim"] = "A" },
		"format:":      func(x map[string]any) { disk(x)["format"] = "qcow2" },
		"diskSize:":    func(x map[string]any) { disk(x)["diskSize"] = 1 << 60 },
		"claimSize:":   func(x map[string]any) { disk(x)["claimSize"] = "1e2000000000" },
		"volumeMode:":  func(x map[string]any) { disk(x)["volumeMode"] = "Net" },
		"accessModes:": func(x map[string]any) { disk(x)["accessModes"] = []any{"All"} },
		"storageClass": func(x map[string]any) { disk(x)["storageClass"] = "a b" },
		"is there twice": func(x map[string]any) {
			x["disks"] = []any{disk(x), disk(x)}
		},
		"are more than the": func(x map[string]any) {
			x["disks"] = make([]any, maxDisks+1)
		},
		"is not what `virtctl export` writes": func(x map[string]any) { x["disks"] = "none" },
	} {
		index := valid()
		change(index)
		text, err := json.Marshal(index)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseIndex(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	index := valid()
	index["later"] = 1
	text, err := json.Marshal(index)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parseIndex(text); err != nil {
		t.Errorf("with a field of a later version: %v", err)
	}
}

// Files that are no backups, and members that are not where they should be.
func TestHostileFile(t *testing.T) {
	of := func(headers ...tar.Header) []byte {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		for i := range headers {
			if err := w.WriteHeader(&headers[i]); err != nil {
				t.Fatal(err)
			}
		}
		return out.Bytes()
	}
	for name, data := range map[string][]byte{
		"empty":     nil,
		"no tar":    bytes.Repeat([]byte("x"), 2000),
		"zeros":     make([]byte, 2000),
		"another":   of(tar.Header{Name: "vm.json", Typeflag: tar.TypeReg, Format: tar.FormatGNU}),
		"a link":    of(tar.Header{Name: indexFile, Typeflag: tar.TypeSymlink, Linkname: "x", Format: tar.FormatGNU}),
		"PAX":       of(tar.Header{Name: indexFile, Typeflag: tar.TypeReg, PAXRecords: map[string]string{"a.b": "c"}}),
		"too large": of(tar.Header{Name: indexFile, Typeflag: tar.TypeReg, Size: 1 << 40, Format: tar.FormatGNU}),
	} {
		if f, err := open(data); err == nil {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// A part becomes FILE when it is whole; what was there before stays until then.
func TestPart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "demo.tar")
	if err := os.WriteFile(path, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	read := func(path string) string {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	part, err := NewPart(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := part.WriteAt([]byte("after"), 0); err != nil {
		t.Fatal(err)
	}
	if got := read(path) + read(part.Name()); got != "beforeafter" {
		t.Errorf("meanwhile %q", got)
	}
	if err := part.Finish(); err != nil || read(path) != "after" {
		t.Errorf("%q: %v", read(path), err)
	}
	if part, err = NewPart(path); err == nil {
		err = part.Discard()
	}
	if _, gone := os.Stat(part.Name()); err != nil || !errors.Is(gone, os.ErrNotExist) || read(path) != "after" {
		t.Errorf("discarded: %v, %v", err, gone)
	}
	if _, err := NewPart(t.TempDir()); err == nil {
		t.Error("a directory is taken")
	}
}

// FuzzOpen: whatever a file has, it is refused, or it becomes claims and a VM of the namespace that was asked for.
func FuzzOpen(f *testing.F) {
	f.Add(example(f, nil))
	f.Add(example(f, func(index *Index) { index.Disks = index.Disks[:0] }))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := open(data)
		if err != nil {
			return
		}
		if err := verify(file); err != nil {
			return
		}
		for _, keep := range []bool{false, true} {
			made, err := file.Make(Wish{Namespace: "ns", Name: "new", KeepIdentity: keep})
			if err != nil {
				continue
			}
			if made.VM.Namespace != "ns" || made.VM.Name != "new" || len(made.Claims) != len(file.Index.Disks) {
				t.Errorf("%+v", made)
			}
		}
	})
}
