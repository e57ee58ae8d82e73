package vmexportcmd

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kubevirt.io/api/export/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/export"
)

// FuzzNote feeds notes of downloads: none is an error, and what is gone on with is the beginning of the file that the
// note is of.
func FuzzNote(f *testing.F) {
	const content = "the beginning of a disk"
	of := func(file int64, sum uint32, done int64) string {
		data, err := json.Marshal(state{
			What: what{Namespace: "ns", Export: "e", Volume: "root", Format: formatRaw}, File: file, Sum: sum,
			Point: export.Point{Format: v1beta1.KubeVirtRaw, Tag: `"t"`, Done: done, Size: 1000, Disk: 1000},
		})
		if err != nil {
			f.Fatal(err)
		}
		return string(data)
	}
	f.Add(of(9, crc32.Checksum([]byte(content[:9]), castagnoli), 9))
	f.Add(of(-9, 0, 9))
	f.Add(of(0, 0, 9))
	f.Add(of(1<<62, 7, 1000))
	f.Add("{}")
	f.Add("null")
	f.Add(strings.Repeat("[", 1000))
	f.Fuzz(func(t *testing.T, note string) {
		path := filepath.Join(t.TempDir(), "disk")
		file := filepath.Join(filepath.Dir(path), ".disk.part")
		for name, text := range map[string]string{file: content, file + ".json": note} {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r := begin(t, path, "root")
		defer r.killed()
		point, _, err := r.resume(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if point == nil {
			return
		}
		left, err := os.ReadFile(file)
		if err != nil || len(left) == 0 || int64(len(left)) != r.size || !strings.HasPrefix(content, string(left)) ||
			r.sum != crc32.Checksum(left, castagnoli) || !point.Valid() {
			t.Errorf("%+v: goes on after %q, %d bytes: %v", point, left, r.size, err)
		}
	})
}

// A note that says that nothing, or less, is in the file is none of a download that has come to somewhere.
func TestNoteOfNothing(t *testing.T) {
	for _, size := range []int64{0, -1} {
		path := filepath.Join(t.TempDir(), "disk")
		first := begin(t, path, "root")
		if err := first.Begin(); err != nil {
			t.Fatal(err)
		}
		point := export.Point{Format: v1beta1.KubeVirtRaw, Tag: `"t"`, Done: 4, Size: 1000}
		if err := first.part.Note(&state{What: first.what, Point: point, File: size}); err != nil {
			t.Fatal(err)
		}
		first.killed()
		second := begin(t, path, "root")
		point2, _, err := second.resume(t.Context())
		if err != nil || point2 != nil || !strings.Contains(fmt.Sprint(second.said), "begins anew") {
			t.Errorf("%d: %+v, said %v: %v", size, point2, second.said, err)
		}
		second.killed()
	}
}
