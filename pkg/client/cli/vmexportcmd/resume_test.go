package vmexportcmd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"kubevirt.io/api/export/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/export"
)

// run is one run of virtctl, with what it says.
type run struct {
	*target
	t    *testing.T
	said []string
}

func begin(t *testing.T, path, volume string) *run {
	t.Helper()
	to, err := open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &run{target: to, t: t}
	to.what = what{Namespace: "ns", Export: "e", Volume: volume, Format: formatRaw}
	to.note = func(format string, arguments ...any) { r.said = append(r.said, fmt.Sprintf(format, arguments...)) }
	return r
}

func (r *run) write(text string, hole int64) {
	r.t.Helper()
	if _, err := r.Write([]byte(text)); err != nil {
		r.t.Fatal(err)
	}
	if err := r.Skip(hole); err != nil {
		r.t.Fatal(err)
	}
	point := export.Point{Format: v1beta1.KubeVirtGz, Tag: `"tag"`, Done: r.size, Size: 1000}
	if err := r.Mark(point); err != nil {
		r.t.Fatal(err)
	}
}

// killed lets go of the file as the end of the process does.
func (r *run) killed() {
	r.t.Helper()
	if err := r.part.Close(); err != nil {
		r.t.Fatal(err)
	}
}

var errCut = errors.New("no route to host")

// A run goes on with what the one before has left, whether that failed or was killed; what came after the last note is
// taken off.
func TestResume(t *testing.T) {
	for name, tc := range map[string]struct {
		first func(*run)
		done  int64
	}{
		"failed": {func(r *run) {
			if err := r.end(errCut); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(r.said, "\n"); !strings.Contains(got, ".disk.part has 107 of 1000 bytes") {
				t.Errorf("said %q", got)
			}
		}, 107},
		"killed": {func(r *run) { r.killed() }, 4},
		"killed amid a write": {func(r *run) {
			if _, err := r.Write([]byte("of the next part")); err != nil {
				t.Fatal(err)
			}
			r.killed()
		}, 4},
	} {
		path := filepath.Join(t.TempDir(), "disk")
		first := begin(t, path, "root")
		first.made = "uid"
		now := time.Unix(1e9, 0)
		first.now = func() time.Time { return now }
		if err := first.Begin(); err != nil {
			t.Fatal(err)
		}
		first.write("data", 0) // is noted
		now = now.Add(noteEach - 1)
		first.write("abc", 100) // is not
		tc.first(first)

		second := begin(t, path, "root")
		point, made, err := second.resume(t.Context())
		if err != nil || point == nil || point.Done != tc.done || point.Tag != `"tag"` || made != "uid" {
			t.Fatalf("%s: %+v, %s: %v", name, point, made, err)
		}
		if want := fmt.Sprintf("going on with %s, which has %d of 1000 bytes",
			filepath.Join(filepath.Dir(path), ".disk.part"), tc.done); strings.Join(second.said, "\n") != want {
			t.Errorf("%s: said %q", name, second.said)
		}
		second.write("end", 0)
		if err := second.finish(); err != nil {
			t.Fatal(err)
		}
		want := ("data" + "abc" + strings.Repeat("\x00", 100))[:tc.done] + "end"
		if data, err := os.ReadFile(path); err != nil || string(data) != want {
			t.Errorf("%s: %q: %v", name, data, err)
		}
		if list, err := os.ReadDir(filepath.Dir(path)); err != nil || len(list) != 1 {
			t.Errorf("%s: beside it there is more: %v %v", name, list, err)
		}
	}
}

// What is not the beginning of the same download is not gone on with, and that is said.
func TestNotResumed(t *testing.T) {
	for name, tc := range map[string]struct {
		between func(path string) error
		volume  string
		want    string
	}{
		"another volume": {nil, "data", "is of another download (ns/e, volume root, raw), and is overwritten"},
		"damaged": {func(path string) error {
			return os.WriteFile(path, []byte("DATA"), 0o600)
		}, "root", "is not as it was written, so the download begins anew"},
		"cut":     {func(path string) error { return os.Truncate(path, 3) }, "root", "is not as it was written"},
		"removed": {os.Remove, "root", "is not as it was written"},
		"no note": {func(path string) error { return os.Remove(path + ".json") }, "root", ""},
	} {
		path := filepath.Join(t.TempDir(), "disk")
		first := begin(t, path, "root")
		if err := first.Begin(); err != nil {
			t.Fatal(err)
		}
		first.write("data", 0)
		if err := first.end(errCut); err != nil {
			t.Fatal(err)
		}
		if tc.between != nil {
			if err := tc.between(filepath.Join(filepath.Dir(path), ".disk.part")); err != nil {
				t.Fatal(err)
			}
		}
		second := begin(t, path, tc.volume)
		point, _, err := second.resume(t.Context())
		if err != nil || point != nil || !strings.Contains(strings.Join(second.said, "\n"), tc.want) ||
			tc.want == "" && len(second.said) > 0 {
			t.Errorf("%s: %+v, said %q: %v", name, point, second.said, err)
		}
		if err := second.Begin(); err != nil {
			t.Fatal(err)
		}
		second.write("new", 0)
		if err := second.finish(); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != "new" {
			t.Errorf("%s: %q: %v", name, data, err)
		}
	}
}

// What nobody can go on with is removed: nothing has come, or it may be of two contents.
func TestNothingToGoOnWith(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		err  error
	}{"nothing has come": {"", errCut}, "the disk has changed": {"data", export.ErrChanged}} {
		path := filepath.Join(t.TempDir(), "disk")
		r := begin(t, path, "root")
		if err := r.Begin(); err != nil {
			t.Fatal(err)
		}
		if tc.text != "" {
			r.write(tc.text, 0)
		}
		if err := r.end(tc.err); err != nil {
			t.Error(err)
		}
		list, err := os.ReadDir(filepath.Dir(path))
		if err != nil || len(list) > 0 || (len(r.said) > 0) != (tc.text != "") {
			t.Errorf("%s: left is %v, said %q: %v", name, list, r.said, err)
		}
	}
}

// A run that goes on and fails before anything has come leaves what there was.
func TestResumedInVain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk")
	r := begin(t, path, "")
	if err := r.Begin(); err != nil {
		t.Fatal(err)
	}
	r.write("data", 6)
	if err := r.end(errCut); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r = begin(t, path, "")
		point, _, err := r.resume(t.Context())
		if err != nil || point == nil || point.Done != 10 {
			t.Fatalf("%+v: %v", point, err)
		}
		if err := r.end(errCut); err != nil {
			t.Fatal(err)
		}
	}
	r = begin(t, path, "")
	if point, _, err := r.resume(t.Context()); err != nil || point == nil {
		t.Fatalf("%+v: %v", point, err)
	}
	if err := r.Begin(); err != nil { // the server has another disk
		t.Fatal(err)
	}
	if got := strings.Join(r.said, "\n"); !strings.Contains(got, "so the download begins anew") || r.size != 0 {
		t.Errorf("said %q, %d bytes are left", got, r.size)
	}
	if err := r.discard(); err != nil {
		t.Error(err)
	}
}

// A run that is killed before anything has come leaves its export to the next one of the same download.
func TestKilledBeforeTheFirstByte(t *testing.T) {
	for name, tc := range map[string]struct {
		begun  bool // the server has answered
		volume string
		want   types.UID
	}{
		"before the answer": {false, "root", "made"},
		"after it":          {true, "root", "made"},
		"another download":  {true, "data", ""},
	} {
		path := filepath.Join(t.TempDir(), "disk")
		first := begin(t, path, "root")
		if err := first.take("made"); err != nil {
			t.Fatal(err)
		}
		if tc.begun {
			if err := first.Begin(); err != nil {
				t.Fatal(err)
			}
		}
		first.killed()
		second := begin(t, path, tc.volume)
		point, made, err := second.resume(t.Context())
		if err != nil || point != nil || made != tc.want {
			t.Errorf("%s: %v, %q, %v", name, point, made, err)
		}
		if err := second.end(errCut); err != nil {
			t.Fatal(err)
		}
		if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".disk*")); err != nil || len(left) > 0 {
			t.Errorf("%s: %v is left, %v", name, left, err)
		}
	}
}

// What a run says of a download through a link names the file that is there: beside what the link leads to.
func TestResumeThroughLink(t *testing.T) {
	dir := t.TempDir()
	store, link := filepath.Join(dir, "store"), filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(store, 0o700), os.Symlink(filepath.Join(store, "disk"), link)); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(store, ".disk.part")
	first := begin(t, link, "root")
	first.write("data", 0)
	if err := first.end(errCut); err != nil {
		t.Fatal(err)
	}
	second := begin(t, link, "root")
	if _, _, err := second.resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := second.end(errCut); err != nil {
		t.Fatal(err)
	}
	said := append(first.said, second.said...)
	if len(said) != 3 {
		t.Errorf("said %q", said)
	}
	for _, note := range said {
		if !strings.Contains(note, name+" has 4 of") && !strings.Contains(note, name+", which has 4 of") {
			t.Errorf("%q does not name %s", note, name)
		}
	}
}

// A run that cannot note what it adds, as on a disk that is full, leaves what the one before has noted.
func TestResumedAndNotNoted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk")
	first := begin(t, path, "root")
	first.write("data", 0)
	if err := first.end(errCut); err != nil {
		t.Fatal(err)
	}
	second := begin(t, path, "root")
	if point, _, err := second.resume(t.Context()); err != nil || point == nil || point.Done != 4 {
		t.Fatalf("%+v: %v", point, err)
	}
	// No note can be written here.
	inTheWay := filepath.Join(filepath.Dir(path), ".disk.part.json.new")
	if err := os.MkdirAll(filepath.Join(inTheWay, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Write([]byte("more")); err != nil {
		t.Fatal(err)
	}
	failed := second.Mark(export.Point{Format: v1beta1.KubeVirtGz, Tag: `"tag"`, Done: second.size, Size: 1000})
	if failed == nil {
		t.Fatal("it is noted")
	}
	if err := second.end(failed); err != nil {
		t.Error(err)
	}
	if got := strings.Join(second.said, "\n"); !strings.Contains(got, ".disk.part has 4 of 1000 bytes") {
		t.Errorf("said %q", got)
	}
	third := begin(t, path, "root")
	defer third.killed()
	if point, _, err := third.resume(t.Context()); err != nil || point == nil || point.Done != 4 || third.size != 4 {
		t.Errorf("%+v, %d bytes: %v", point, third.size, err)
	}
}
