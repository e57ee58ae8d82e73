//go:build linux

package export

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"kubevirt.io/api/export/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/exporter"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

const token = "secret-token"

// cluster has one export, whose pod is a server here.
type cluster struct {
	t      *testing.T
	server *httptest.Server
	disk   string
	// pod are the options of the pod's server.
	pod exporter.Options

	mu     sync.Mutex
	export v1beta1.VirtualMachineExport
	// cuts are after how many bytes of each connection it is cut; one that is not there is not.
	cuts  []int64
	dials int
	// cut is called at each cut.
	cut func()
	// refuses is the answer to the creation of a Secret.
	refuses error
	deleted []string
	created []metav1.Object
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	dir := t.TempDir()
	c := &cluster{t: t, disk: filepath.Join(dir, "disk.img"), cut: func() {}}
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"all.yaml": "kind: VirtualMachine\n", "all.json": "{}"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := exporter.Options{
		Name: "e", Token: filepath.Join(dir, "token"), Manifests: dir, Stall: time.Minute,
		Log: slog.New(slog.DiscardHandler),
	}
	if err := o.Add("disk", "root="+dir); err != nil {
		t.Fatal(err)
	}
	if err := o.Add("files", "share="+dir); err != nil {
		t.Fatal(err)
	}
	c.pod = o
	c.server = httptest.NewTLSServer(exporter.NewHandler(o))
	t.Cleanup(c.server.Close)
	c.export = v1beta1.VirtualMachineExport{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "e", UID: "uid"},
		Spec:       v1beta1.VirtualMachineExportSpec{Source: Source{exports.KindVM, "vm"}.Reference()},
		Status: &v1beta1.VirtualMachineExportStatus{
			Phase: v1beta1.Ready, TokenSecretRef: new("token"), ServiceName: "virt-export-e",
			Links: &v1beta1.VirtualMachineExportLinks{
				Internal: c.links(exports.Volume{Name: "root", Content: exports.Disk}),
			},
			Conditions: []v1beta1.Condition{{
				Type: v1beta1.ConditionReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(1, 0),
			}},
		},
	}
	return c
}

// links are addresses at the name that is in the certificate of httptest.
func (c *cluster) links(volumes ...exports.Volume) *v1beta1.VirtualMachineExportLink {
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.server.Certificate().Raw})
	return exports.Links("example.com", string(certificate), volumes, true)
}

// write makes the disk, with holes.
func (c *cluster) write(size int64) []byte {
	c.t.Helper()
	data := make([]byte, size)
	_, _ = rand.Read(data[:size/3*2])
	_, _ = rand.Read(data[size-1000:])
	if err := os.WriteFile(c.disk, data, 0o600); err != nil {
		c.t.Fatal(err)
	}
	return data
}

func (c *cluster) Read(_ context.Context, path string, query url.Values, into any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch into := into.(type) {
	case *v1beta1.VirtualMachineExport:
		c.export.DeepCopyInto(into)
	case *corev1.Service:
		into.Spec.Selector = map[string]string{"a": "b"}
		into.Spec.Ports = []corev1.ServicePort{{Port: 443, TargetPort: intstr.FromInt32(8443)}}
	case *corev1.PodList:
		if query.Get("labelSelector") != "a=b" {
			c.t.Errorf("%s %v", path, query)
		}
		into.Items = []corev1.Pod{{
			ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
		}}
	default:
		c.t.Errorf("%s is read", path)
	}
	return nil
}

func (c *cluster) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{names.ExportTokenKey: []byte(token)},
	}, nil
}

func (c *cluster) PodPort(_ context.Context, namespace, pod string, port uint16) (net.Conn, error) {
	if namespace != "ns" || pod != "pod" || port != 8443 {
		c.t.Errorf("%s/%s:%d is reached", namespace, pod, port)
	}
	conn, err := net.Dial("tcp", c.server.Listener.Addr().String())
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dials++
	if c.dials <= len(c.cuts) {
		return &cutConn{Conn: conn, left: c.cuts[c.dials-1], cut: c.cut}, nil
	}
	return conn, nil
}

// cutConn is a connection that is cut.
type cutConn struct {
	net.Conn
	left int64
	cut  func()
}

func (c *cutConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		c.cut()
		return 0, errors.Join(errors.New("cut"), c.Close())
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

func (c *cluster) CreateTyped(_ context.Context, _, _ string, object, into metav1.Object, _ bool) error {
	c.created = append(c.created, object)
	object.(*v1beta1.VirtualMachineExport).DeepCopyInto(into.(*v1beta1.VirtualMachineExport))
	into.SetUID("made")
	return nil
}

func (c *cluster) CreateSecret(_ context.Context, secret *corev1.Secret, _ bool) (*corev1.Secret, error) {
	c.created = append(c.created, secret)
	return secret, c.refuses
}

func (c *cluster) DeleteObject(_ context.Context, _, _, resource, name string, _ metav1.DeleteOptions) error {
	c.deleted = append(c.deleted, resource+"/"+name)
	return nil
}

// output keeps what is downloaded.
type output struct {
	bytes.Buffer
	begun, holes int
}

func (o *output) Begin() error {
	o.begun++
	o.Reset()
	return nil
}

func (o *output) Skip(n int64) error {
	o.holes++
	_, err := o.Write(make([]byte, n))
	return err
}

func download(change func(*Download)) Download {
	d := Download{
		Namespace: "ns", Name: "e", Readiness: time.Minute, Report: func(string) {}, Show: func(int64, int64) {},
	}
	if change != nil {
		change(&d)
	}
	return d
}

func unpacked(t *testing.T, packed []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

const disk = 11 << 20

func TestDownload(t *testing.T) {
	c := newCluster(t)
	want := c.write(disk)
	for _, raw := range []bool{false, true} {
		out := &output{}
		var last, total int64
		result, err := download(func(d *Download) {
			d.Raw = raw
			d.Show = func(done, of int64) { last, total = done, of }
		}).Run(t.Context(), c, out)
		if err != nil || result.Bytes != disk || last != disk || total != disk {
			t.Fatalf("%+v, shown %d of %d: %v", result, last, total, err)
		}
		got := out.Bytes()
		if !raw {
			got = unpacked(t, got)
		}
		if !bytes.Equal(got, want) || raw && out.holes == 0 {
			t.Errorf("raw %t: %d bytes, %d holes", raw, len(got), out.holes)
		}
	}
}

// Cut at any byte, a download goes on and has the same at its end.
func TestCut(t *testing.T) {
	c := newCluster(t)
	want := c.write(disk)
	for _, cuts := range [][]int64{{0}, {3000}, {5 << 20, 5 << 20}, {1 << 20, 100, 4 << 20}, {4 << 20, 0, 0, 0}} {
		for _, raw := range []bool{false, true} {
			c.cuts, c.dials = cuts, 0
			out := &output{}
			_, err := download(func(d *Download) { d.Raw, d.Retries = raw, 1 }).Run(t.Context(), c, out)
			if err != nil {
				t.Errorf("cut after %v: %v", cuts, err)
				continue
			}
			got := out.Bytes()
			if !raw {
				got = unpacked(t, got)
			}
			if !bytes.Equal(got, want) || out.begun != 1 {
				t.Errorf("cut after %v, raw %t: %d bytes, begun %d times", cuts, raw, len(got), out.begun)
			}
		}
	}
}

// What cannot go on fails with a sentence.
func TestDownloadFails(t *testing.T) {
	for name, tc := range map[string]struct {
		change   func(*cluster)
		download func(*Download)
		want     string
	}{
		"the disk changes during a cut": {func(c *cluster) {
			c.cuts = []int64{5 << 20}
			c.cut = func() { c.write(disk) }
		}, nil, "the disk has changed since the download began"},
		"the export is another": {func(c *cluster) {
			c.cuts = []int64{5 << 20}
			c.cut = func() { c.mu.Lock(); c.export.UID = "other"; c.mu.Unlock() }
		}, nil, "was deleted meanwhile"},
		"the VM starts meanwhile": {func(c *cluster) {
			c.cuts = []int64{5 << 20}
			c.cut = func() {
				c.mu.Lock()
				c.export.Status.Conditions[0].LastTransitionTime = metav1.Unix(2, 0)
				c.mu.Unlock()
			}
		}, nil, ""},
		"not ready": {func(c *cluster) {
			c.export.Status.Phase = v1beta1.Pending
			c.export.Status.Conditions[0] = v1beta1.Condition{
				Type: v1beta1.ConditionReady, Status: corev1.ConditionFalse, Reason: "InUse",
				Message: "Virtual Machine ns/vm is running",
			}
		}, func(d *Download) { d.Readiness = 0 }, "is running; stop it, or export a snapshot"},
		"skipped": {func(c *cluster) {
			c.export.Status.Phase = v1beta1.Skipped
			c.export.Status.Conditions[0] = v1beta1.Condition{Type: v1beta1.ConditionReady, Reason: "VMNoVolumes"}
		}, nil, "is skipped: VMNoVolumes"},
		"being deleted": {func(c *cluster) {
			c.export.DeletionTimestamp = &metav1.Time{}
			c.export.Status.Phase = v1beta1.Pending
		}, nil, "is being deleted"},
		"no token": {func(c *cluster) { c.export.Status.TokenSecretRef = nil }, nil, "names no Secret with its token"},
		"another's certificate": {func(c *cluster) {
			c.export.Status.Links.Internal.Volumes[0].Formats[1].Url = "https://elsewhere.example/disk.img.gz"
		}, nil, "the server is not the export's"},
		"no certificate": {func(c *cluster) { c.export.Status.Links.Internal.Cert = "x" }, nil, "certificate is none"},
		"not https": {func(c *cluster) {
			c.export.Status.Links.Internal.Volumes[0].Formats[1].Url = "http://example.com/"
		}, nil, "would carry the token openly"},
		"no volume": {nil, func(d *Download) { d.Volume = "x" }, "the export has no volume x; it has: root"},
		"no qcow2": {func(c *cluster) {
			c.export.Status.Links.Internal = c.links(exports.Volume{Name: "share", Content: exports.Files})
		}, func(d *Download) { d.QCOW2 = true }, "is not served as qcow2; its formats are: dir, tar.gz"},
		"several volumes": {func(c *cluster) {
			c.export.Status.Links.Internal = c.links(exports.Volume{Name: "a", Content: exports.Disk},
				exports.Volume{Name: "b", Content: exports.Files})
		}, nil, "choose one with --volume: a, b"},
		"not served": {func(c *cluster) {
			c.export.Status.Links.Internal = c.links(exports.Volume{Name: "other", Content: exports.Disk})
		}, nil, "404 Not Found: the export has no such volume"},
	} {
		c := newCluster(t)
		c.write(disk)
		if tc.change != nil {
			tc.change(c)
		}
		_, err := download(tc.download).Run(t.Context(), c, &output{})
		if tc.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) ||
			errors.Is(err, action.ErrTimeout) != (name == "not ready") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A disk that somebody has begun to use while the last of it came is no good download; a snapshot's is.
func TestStillReady(t *testing.T) {
	for _, kind := range []string{exports.KindVM, exports.KindSnapshot} {
		c := newCluster(t)
		c.write(disk)
		c.export.Spec.Source = Source{kind, "x"}.Reference()
		d := download(func(d *Download) {
			d.Show = func(int64, int64) {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.export.Status.Phase = v1beta1.Pending
			}
		})
		_, err := d.Run(t.Context(), c, &output{})
		if (err == nil) != (kind == exports.KindSnapshot) {
			t.Errorf("%s: %v", kind, err)
		}
		if err != nil && !strings.Contains(err.Error(), "the disk may have changed while it was read") {
			t.Error(err)
		}
	}
}

// An archive has no size, and begins anew.
func TestArchive(t *testing.T) {
	c := newCluster(t)
	c.write(disk)
	c.export.Status.Links.Internal = c.links(exports.Volume{Name: "share", Content: exports.Files})
	c.cuts = []int64{1 << 20}
	out := &output{}
	result, err := download(func(d *Download) { d.Retries = 1 }).Run(t.Context(), c, out)
	if err != nil || out.begun != 2 || result.Format != v1beta1.ArchiveGz || result.Bytes != int64(out.Len()) {
		t.Errorf("%+v, begun %d times: %v", result, out.begun, err)
	}
	if data := unpacked(t, out.Bytes()); !bytes.Contains(data, []byte("all.yaml")) {
		t.Error("the archive lacks a file")
	}
	c.cuts, c.dials = []int64{1 << 20}, 0
	if _, err := download(nil).Run(t.Context(), c, &output{}); err == nil {
		t.Error("a cut archive is taken for whole")
	}
}

// A server of KubeVirt's sends one member and says no size.
func TestOtherServer(t *testing.T) {
	c := newCluster(t)
	data := bytes.Repeat([]byte("disk"), 1<<20)
	c.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("x-kubevirt-export-token") != token || r.URL.RawQuery != "" {
			t.Errorf("asked for %s", r.URL)
		}
		packer := gzip.NewWriter(w)
		_, _ = packer.Write(data)
		_ = packer.Close()
	})
	for _, raw := range []bool{false, true} {
		out := &output{}
		if _, err := download(func(d *Download) { d.Raw = raw }).Run(t.Context(), c, out); err != nil {
			t.Fatal(err)
		}
		got := out.Bytes()
		if !raw {
			got = unpacked(t, got)
		}
		if !bytes.Equal(got, data) {
			t.Errorf("raw %t: %d bytes", raw, len(got))
		}
	}
}

func TestManifests(t *testing.T) {
	c := newCluster(t)
	for want, change := range map[string]func() (asJSON, secret bool){
		"kind: VirtualMachine\n": func() (bool, bool) { return false, false },
		"{}":                     func() (bool, bool) { return true, false },
		"kind: VirtualMachine\napiVersion: v1\nkind: Secret\nmetadata:\n  name: header-secret-e\nstringData:\n" +
			"  token: \"x-kubevirt-export-token:secret-token\"\n---\n": func() (bool, bool) { return false, true },
	} {
		asJSON, secret := change()
		got, err := download(nil).Manifests(t.Context(), c, asJSON, secret)
		if err != nil || string(got.Data) != want || got.Service != "" || got.Export.UID != "uid" {
			t.Errorf("%+v: %v", got, err)
		}
	}
	inside := "url: https://virt-export-e.ns.svc/volumes/root/disk.img.gz\n"
	if err := os.WriteFile(filepath.Join(filepath.Dir(c.disk), "all.yaml"), []byte(inside), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := download(nil).Manifests(t.Context(), c, false, false)
	if err != nil || got.Service != "virt-export-e.ns.svc" {
		t.Errorf("%+v: %v", got, err)
	}
	c.export.Status.Links.Internal.Manifests = nil
	if _, err := download(nil).Manifests(t.Context(), c, false, false); err == nil {
		t.Error("a claim has manifests")
	}
}

// answers is a cluster that answers each request in one way.
type answers struct {
	API
	err  error
	path string
}

func (a *answers) Read(_ context.Context, path string, _ url.Values, _ any) error {
	a.path = path
	return a.err
}

// What is not there is an error; what may not be read, or whose kind nobody serves, is not known to be missing.
func TestLook(t *testing.T) {
	resource := schema.GroupResource{Group: "g", Resource: "r"}
	unserved := apierrors.NewNotFound(resource, "")
	unserved.ErrStatus.Details.Name = ""
	for name, tc := range map[string]struct {
		source Source
		err    error
		path   string
		wrong  bool
	}{
		"there": {Source{exports.KindVM, "v"}, nil, "/apis/kubevirt.io/v1/namespaces/ns/virtualmachines/v", false},
		"missing": {
			Source{exports.KindClaim, "c"},
			apierrors.NewNotFound(resource, "c"),
			"/api/v1/namespaces/ns/persistentvolumeclaims/c", true,
		},
		"not to be read": {
			Source{exports.KindVM, "v"},
			apierrors.NewForbidden(resource, "v", errors.New("no")),
			"/apis/kubevirt.io/v1/namespaces/ns/virtualmachines/v", false,
		},
		"no such kind": {
			Source{exports.KindSnapshot, "s"},
			unserved,
			"/apis/snapshot.kubevirt.io/v1beta1/namespaces/ns/virtualmachinesnapshots/s", false,
		},
		"no answer": {
			Source{exports.KindVM, "v"},
			io.ErrUnexpectedEOF,
			"/apis/kubevirt.io/v1/namespaces/ns/virtualmachines/v", true,
		},
	} {
		api := &answers{err: tc.err}
		err := tc.source.Look(t.Context(), api, "ns")
		if (err != nil) != tc.wrong || api.path != tc.path || tc.wrong && !errors.Is(err, tc.err) {
			t.Errorf("%s: %s is read: %v", name, api.path, err)
		}
	}
}

func TestCreate(t *testing.T) {
	c := newCluster(t)
	export := New(Request{
		Namespace: "ns", Name: "e", Source: Source{exports.KindSnapshot, "s"}, TTL: time.Minute,
		Labels: map[string]string{"a": "b"},
	})
	if _, err := Create(t.Context(), c, export, false); err != nil {
		t.Fatal(err)
	}
	secret := c.created[1].(*corev1.Secret)
	if secret.Name != "secret-e" || *export.Spec.TokenSecretRef != "secret-e" ||
		secret.OwnerReferences[0].UID != "made" || len(secret.Data["token"]) < 20 ||
		*export.Spec.Source.APIGroup != "snapshot.kubevirt.io" ||
		export.Spec.TTLDuration.Duration != time.Minute {
		t.Errorf("%+v\n%+v", export, secret)
	}
	resource := schema.GroupResource{Resource: "secrets"}
	c.refuses = apierrors.NewAlreadyExists(resource, "secret-e")
	if _, err := Create(t.Context(), c, export, false); err != nil || len(c.deleted) > 0 {
		t.Errorf("the Secret is there: %v, deleted %v", err, c.deleted)
	}
	c.refuses = apierrors.NewForbidden(resource, "secret-e", errors.New("quota"))
	if _, err := Create(t.Context(), c, export, false); !apierrors.IsForbidden(err) ||
		strings.Join(c.deleted, " ") != "virtualmachineexports/e" {
		t.Errorf("without the right to Secrets: %v, deleted %v", err, c.deleted)
	}
}

// former has the token of an export before, until the garbage collector has come by.
type former struct {
	*cluster
	owner types.UID
	tries int
}

func (f *former) CreateSecret(ctx context.Context, secret *corev1.Secret, dryRun bool) (*corev1.Secret, error) {
	if f.tries++; f.tries < 3 {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "secrets"}, secret.Name)
	}
	return f.cluster.CreateSecret(ctx, secret, dryRun)
}

func (f *former) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{
		Kind: exports.Kind, Name: "e", UID: f.owner, Controller: new(true),
	}}}}, nil
}

// An export that follows another of its name does not take that one's token, which goes.
func TestCreateAnew(t *testing.T) {
	for owner, tries := range map[types.UID]int{"before": 3, "made": 1} {
		f := &former{cluster: newCluster(t), owner: owner}
		export := New(Request{Namespace: "ns", Name: "e", Source: Source{exports.KindSnapshot, "s"}})
		if _, err := Create(t.Context(), f, export, false); err != nil || f.tries != tries {
			t.Errorf("a token of %s: %d tries, %v", owner, f.tries, err)
		}
	}
}

// FuzzMembers reads any bytes as a compressed disk: what is taken for whole is what gzip makes of it.
func FuzzMembers(f *testing.F) {
	var whole bytes.Buffer
	for _, part := range []string{"one", "", "two"} {
		w := gzip.NewWriter(&whole)
		_, _ = w.Write([]byte(part))
		_ = w.Close()
	}
	f.Add(whole.Bytes())
	f.Add(whole.Bytes()[:whole.Len()-3])
	f.Add([]byte{0x1f, 0x8b})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		in, raw, all, packed := newMembers(bytes.NewReader(data)), &bytes.Buffer{}, []byte(nil), []byte(nil)
		for {
			member, err := in.next(raw)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return
			}
			packed, all = append(packed, member...), append(all, raw.Bytes()...)
		}
		if !bytes.Equal(packed, data) {
			t.Fatalf("%d of %d bytes were taken", len(packed), len(data))
		}
		if len(data) > 0 && !bytes.Equal(unpacked(t, data), all) {
			t.Fatal("gzip has read something else")
		}
	})
}

// The external address is used where there is one, unless the user, or a command without a flag for it, wants the API
// server; an export that has only one of the two is reached by that.
func TestWay(t *testing.T) {
	c := newCluster(t)
	inside := c.export.Status.Links.Internal
	outside := c.links(exports.Volume{Name: "root", Content: exports.Disk})
	both := v1beta1.VirtualMachineExportLinks{Internal: inside, External: outside}
	for name, tc := range map[string]struct {
		links     v1beta1.VirtualMachineExportLinks
		by        Reach
		forwarded bool
		want      *v1beta1.VirtualMachineExportLink
	}{
		"both":                            {both, Reach{}, false, outside},
		"the API server is asked for":     {both, Reach{PortForward: true}, true, inside},
		"its answer comes late":           {both, Reach{measures: true}, true, inside},
		"a command without a flag for it": {both, Reach{Inside: true}, true, inside},
		"its Service is reached":          {both, Reach{ServiceURL: "localhost:1", Inside: true}, false, inside},
		"inside alone":                    {v1beta1.VirtualMachineExportLinks{Internal: inside}, Reach{}, true, inside},
		"outside alone": {
			v1beta1.VirtualMachineExportLinks{External: outside}, Reach{Inside: true, measures: true}, false, outside,
		},
	} {
		export := c.export.DeepCopy()
		export.Status.Links = &tc.links
		s, err := reach(t.Context(), c, export, tc.by)
		if err != nil || s.forwarded != tc.forwarded || s.link != tc.want {
			t.Errorf("%s: %+v %v", name, s, err)
		}
	}
	export := c.export.DeepCopy()
	export.Status.Links = &both
	s, err := reach(t.Context(), unforwarded{c}, export, Reach{measures: true})
	if err != nil || s.forwarded || s.link != outside {
		t.Errorf("a caller who may not forward ports: %+v %v", s, err)
	}
}

// unforwarded is a cluster in which the caller may not forward ports.
type unforwarded struct{ *cluster }

func (u unforwarded) PodPort(_ context.Context, _, pod string, _ uint16) (net.Conn, error) {
	return nil, apierrors.NewForbidden(corev1.Resource("pods/portforward"), pod, nil)
}
