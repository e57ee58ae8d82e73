//go:build linux

package backup

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"kubevirt.io/api/export/v1beta1"

	"github.com/virtkit/virtkit/pkg/exporter"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

// stopped is a cluster with a VM that is stopped, and the server of its exports.
type stopped struct {
	*target
	dir, path string
	disks     map[string][]byte

	mu sync.Mutex
	// uids are the exports that are there, by name.
	uids map[string]types.UID
	// asked are the requests for disks, each the claim and from which byte on.
	asked []string
	// away has the API server not answer for exports.
	away bool
}

func newStopped(t *testing.T) *stopped {
	t.Helper()
	c := &stopped{
		target: newTarget(t), dir: t.TempDir(), disks: map[string][]byte{}, uids: map[string]types.UID{},
	}
	c.path = filepath.Join(c.dir, "demo.tar")
	vm := exampleVM()
	vm.Namespace = "ns"
	c.Put(machinesPath+"/demo", vm)
	claims := t.TempDir()
	o := exporter.Options{
		Name: "e", Token: filepath.Join(claims, "token"), Stall: time.Minute, Log: slog.New(slog.DiscardHandler),
	}
	if err := os.WriteFile(o.Token, []byte("token"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"demo-root", "data", "lost"} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")}
		c.Put(claimsPath+"/"+name, claim)
		c.disks[name] = make([]byte, 9<<20)
		_, _ = rand.Read(c.disks[name][:8<<20])
		if err := os.Mkdir(filepath.Join(claims, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(claims, name, "disk.img"), c.disks[name], 0o600); err != nil {
			t.Fatal(err)
		}
		if err := o.Add("disk", name+"="+filepath.Join(claims, name)); err != nil {
			t.Fatal(err)
		}
	}
	handler := exporter.NewHandler(o)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		c.asked = append(c.asked, strings.Split(r.URL.Path, "/")[2]+" "+r.URL.Query().Get(names.ExportOffset))
		c.mu.Unlock()
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	c.serveExports(server)
	return c
}

func (c *stopped) serveExports(server *httptest.Server) {
	var volumes []exports.Volume
	for _, claim := range []string{"demo-root", "data", "lost"} {
		volumes = append(volumes, exports.Volume{Name: claim, Content: exports.Disk})
	}
	link := exports.Links(server.Listener.Addr().String(), string(pem.EncodeToMemory(&pem.Block{
		Type: "CERTIFICATE", Bytes: server.Certificate().Raw,
	})), volumes, true)
	token := &corev1.Secret{Data: map[string][]byte{names.ExportTokenKey: []byte("token")}}
	c.Put("/api/v1/namespaces/ns/secrets/token", token)
	c.Put("/api/v1/namespaces/ns/secrets", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c.answer(w, http.StatusCreated, token)
	}))
	c.Put(snapshotsPath, map[string]any{"items": []any{}})
	c.Put(exportsPath, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		made := &v1beta1.VirtualMachineExport{}
		c.decode(r, made)
		c.mu.Lock()
		made.UID = types.UID("uid-" + made.Name)
		c.uids[made.Name] = made.UID
		c.mu.Unlock()
		c.answer(w, http.StatusCreated, made)
	}))
	for _, name := range []string{"backup-first", "backup-second"} {
		c.Put(exportsPath+"/"+name, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c.mu.Lock()
			defer c.mu.Unlock()
			uid := c.uids[name]
			switch {
			case c.away:
				c.refused(w, apierrors.NewServiceUnavailable("etcd is away"))
				return
			case uid == "":
				c.refused(w, apierrors.NewNotFound(schema.GroupResource{Resource: exports.Resource}, name))
				return
			case r.Method == http.MethodDelete:
				delete(c.uids, name)
			}
			export := &v1beta1.VirtualMachineExport{
				TypeMeta:   metav1.TypeMeta{APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: exports.Kind},
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: uid},
				Status: &v1beta1.VirtualMachineExportStatus{
					Phase: v1beta1.Ready, TokenSecretRef: new("token"),
					Links: &v1beta1.VirtualMachineExportLinks{External: link},
					Conditions: []v1beta1.Condition{{
						Type: v1beta1.ConditionReady, Status: corev1.ConditionTrue,
						LastTransitionTime: metav1.Unix(1, 0),
					}},
				},
			}
			export.Spec.Source.Kind, export.Spec.Source.Name = exports.KindVM, "demo"
			c.answer(w, http.StatusOK, export)
		}))
	}
}

// refused answers with a Status, as an API server does.
func (c *stopped) refused(w http.ResponseWriter, err *apierrors.StatusError) {
	err.ErrStatus.Kind, err.ErrStatus.APIVersion = "Status", "v1"
	c.answer(w, int(err.ErrStatus.Code), err.ErrStatus)
}

// run exports the VM. show sees how far it is.
func (c *stopped) run(temporary, path string, show func(name string, done int64)) error {
	c.t.Helper()
	part, err := NewPart(path)
	if err != nil {
		c.t.Fatal(err)
	}
	_, err = Write(c.t.Context(), c.Client(), part, ExportOptions{
		Namespace: "ns", Kind: exports.KindVM, Name: "demo", Temporary: temporary, Lifetime: time.Hour,
		Taking: time.Minute, Readiness: time.Minute, Now: time.Unix(1e9, 0), Report: func(string) {},
		Show: func(name string, done, _ int64) { show(name, done) },
		Note: func(text string) { c.note(&c.notes, text) },
	})
	return err
}

// killed leaves what an export has that is killed amid a disk, and returns the note of it.
func (c *stopped) killed(amid string) {
	c.t.Helper()
	elsewhere, taken := filepath.Join(c.t.TempDir(), "demo.tar"), false
	err := c.run("backup-first", elsewhere, func(name string, done int64) {
		if taken || name != amid || done <= 4<<20 {
			return
		}
		taken = true
		from, to := filepath.Dir(elsewhere), filepath.Dir(c.path)
		for _, file := range []string{".demo.tar.part", ".demo.tar.part.json"} {
			data, err := os.ReadFile(filepath.Join(from, file))
			if err == nil {
				err = os.WriteFile(filepath.Join(to, file), data, 0o600)
			}
			if err != nil {
				c.t.Fatal(err)
			}
		}
	})
	if err != nil || !taken {
		c.t.Fatalf("taken %t: %v", taken, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uids["backup-first"] = "uid-backup-first" // a killed one does not delete it
	c.asked, c.notes = nil, nil
}

// whole fails unless the file is a good one with all disks.
func (c *stopped) whole() {
	c.t.Helper()
	data, err := os.ReadFile(c.path)
	if err != nil {
		c.t.Fatal(err)
	}
	file, err := open(data)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := verify(file); err != nil {
		c.t.Fatal(err)
	}
	for i := range file.Index.Disks {
		claim := file.Index.Disks[i].Claim
		if got := unpackedDisk(c.t, file, i); !bytes.Equal(got, c.disks[claim]) {
			c.t.Errorf("the disk of %s has %d bytes, and not those that it had", claim, len(got))
		}
	}
	if list, err := os.ReadDir(c.dir); err != nil || len(list) != 1 || len(file.Index.Disks) != 3 {
		c.t.Errorf("%d disks, and left is %v: %v", len(file.Index.Disks), list, err)
	}
}

// An export that was killed amid any disk goes on there, with the same export, and leaves nothing.
func TestExportGoesOn(t *testing.T) {
	for amid, want := range map[string][]string{
		"root": {"demo-root 4194304", "data ", "lost "},
		"data": {"data 4194304", "lost "},
		"lost": {"lost 4194304"},
	} {
		c := newStopped(t)
		c.killed(amid)
		if err := c.run("backup-second", c.path, func(string, int64) {}); err != nil {
			t.Fatal(err)
		}
		c.whole()
		if !slices.Equal(c.asked, want) || len(c.uids) > 0 {
			t.Errorf("killed amid %s: asked for %q, left %v", amid, c.asked, c.uids)
		}
		if said := strings.Join(c.notes, "\n"); !strings.Contains(said, "going on with "+
			filepath.Join(c.dir, ".demo.tar.part")+", which has ") {
			t.Errorf("killed amid %s: it says %q", amid, said)
		}
	}
}

// What is not the beginning of the same is not gone on with: the export begins anew, says why, and deletes what was
// left.
func TestExportBeginsAnew(t *testing.T) {
	edit := func(at func(data []byte) int) func(*stopped) {
		return func(c *stopped) {
			name := filepath.Join(c.dir, ".demo.tar.part")
			data, err := os.ReadFile(name)
			if err != nil {
				c.t.Fatal(err)
			}
			data[at(data)] ^= 1
			if err := os.WriteFile(name, data, 0o600); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	all := []string{"demo-root ", "data ", "lost "}
	for name, tc := range map[string]struct {
		change func(*stopped)
		want   string
		asked  []string
	}{
		"the export is gone": {func(c *stopped) { delete(c.uids, "backup-first") }, "not there any more", all},
		"the export is another": {func(c *stopped) {
			c.uids["backup-first"] = "other"
		}, "not there any more", all},
		"a whole disk is damaged": {
			edit(func(data []byte) int { return 1 << 20 }), "is not as it was written, so the export begins anew", all,
		},
		"the disk amid which it was is damaged": {
			edit(func(data []byte) int { return len(data) - 8<<20 }),
			"volume data is not as it was written to",
			[]string{"data ", "lost "},
		},
		"the VM is changed": {func(c *stopped) {
			vm := exampleVM()
			vm.Namespace, vm.Labels = "ns", map[string]string{"new": "label"}
			c.Put(machinesPath+"/demo", vm)
		}, "VM ns/demo is not as it was when", all},
		"the note is of another VM": {func(c *stopped) {
			name := filepath.Join(c.dir, ".demo.tar.part.json")
			data, err := os.ReadFile(name)
			if err != nil {
				c.t.Fatal(err)
			}
			data = bytes.Replace(data, []byte(`"name":"demo"`), []byte(`"name":"other"`), 1)
			if err := os.WriteFile(name, data, 0o600); err != nil {
				c.t.Fatal(err)
			}
		}, "is of another export, of VirtualMachine ns/other, and is overwritten", all},
	} {
		c := newStopped(t)
		c.killed("data")
		tc.change(c)
		if err := c.run("backup-second", c.path, func(string, int64) {}); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		c.whole()
		said := strings.Join(c.notes, "\n")
		if !strings.Contains(said, tc.want) || !slices.Equal(c.asked, tc.asked) {
			t.Errorf("%s: it says %q, asked for %q", name, said, c.asked)
		}
		if _, left := c.uids["backup-second"]; left {
			t.Errorf("%s: left is %v", name, c.uids)
		}
	}
}

// Where the cluster does not answer, so that nothing can be deleted, the part stays for another run.
func TestPartStays(t *testing.T) {
	c := newStopped(t)
	c.killed("data")
	c.away = true
	err := c.run("backup-second", c.path, func(string, int64) {})
	if !errors.Is(err, errLeft) || !strings.Contains(err.Error(), "etcd is away") ||
		!strings.Contains(strings.Join(c.notes, "\n"), ".demo.tar.part stays; the same command goes on there") {
		t.Errorf("it says %q: %v", c.notes, err)
	}
	c.away = false
	if err := c.run("backup-second", c.path, func(string, int64) {}); err != nil {
		t.Fatal(err)
	}
	c.whole()
	if !slices.Equal(c.asked, []string{"data 4194304", "lost "}) || len(c.uids) > 0 {
		t.Errorf("asked for %q, left %v", c.asked, c.uids)
	}
}

// unpackedDisk is a disk of a file.
func unpackedDisk(t *testing.T, file *File, i int) []byte {
	t.Helper()
	in, err := gzip.NewReader(file.disk(i))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
