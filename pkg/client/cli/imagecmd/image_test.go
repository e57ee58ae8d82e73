package imagecmd

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/action/images"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

const claims = "/api/v1/namespaces/team-a/persistentvolumeclaims"

// world is a user with a configuration of their own, and an API server whose namespace team-a has image debian/13.
type world struct {
	*clienttest.API
	t       *testing.T
	dir     string
	deleted atomic.Int32
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{API: clienttest.New(t), t: t, dir: t.TempDir()}
	debian := &images.Image{Name: "debian", Version: "13", User: "debian"}
	claim := corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "debian-13", UID: "u", Labels: debian.Labels()},
		Spec: corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")},
		}},
	}
	w.Put(claims, &corev1.PersistentVolumeClaimList{Items: []corev1.PersistentVolumeClaim{claim}})
	w.Put(claims+"/debian-13", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			w.deleted.Add(1)
		}
		rw.Header().Set("Content-Type", "application/json")
		_, _ = rw.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Success"}`))
	}))
	return w
}

func (w *world) run(args ...string) (stdout, stderr string, err error) {
	w.t.Helper()
	var out, errOut bytes.Buffer
	streams := &cli.IOStreams{In: strings.NewReader("yes\n"), Out: &out, ErrOut: &errOut}
	f := cli.NewFactory("virtctl", streams, func(name string) string {
		return map[string]string{"XDG_CONFIG_HOME": w.dir, "XDG_CACHE_HOME": w.dir}[name]
	})
	f.Now = func() time.Time { return time.Unix(0, 0) }
	cmd := NewCmdImage(f)
	f.Flags.AddFlags(cmd.PersistentFlags())
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append(args, "--kubeconfig", w.Kubeconfig("team-a")))
	err = cmd.ExecuteContext(w.t.Context())
	f.IO.Flush()
	return out.String(), errOut.String(), err
}

func TestList(t *testing.T) {
	w := newWorld(t)
	out, _, err := w.run("list")
	// An alias that the catalogue knows names it, too.
	if _, said, err := w.run("rm", "debian/trixie", "--dry-run=client"); err != nil {
		t.Errorf("%v, %s", err, said)
	}
	const want = "IMAGE       CLAIM       PHASE   SIZE   USER     INSTANCETYPE   PREFERENCE   AGE\n" +
		"debian/13   debian-13   Ready   5Gi    debian   <none>         <none>       <unknown>\n"
	if out != want || err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	w.Put(claims, &corev1.PersistentVolumeClaimList{})
	if out, errOut, err := w.run("list"); out != "" || err != nil || errOut !=
		"No images found. `virtctl image list --available` lists those that can be pulled.\n" {
		t.Errorf("%v, %q, %q", err, out, errOut)
	}
}

// An upload that has not ended well is in the list, with how far it came.
func TestListOfUploads(t *testing.T) {
	w := newWorld(t)
	w.Put(claims, &corev1.PersistentVolumeClaimList{Items: []corev1.PersistentVolumeClaim{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "disk", Annotations: map[string]string{
			uploads.AnnotationState: uploads.Encode(uploads.State{
				Phase: uploads.Failed, Received: 3 << 20, Size: 5 << 30, Message: "cut",
			}),
		}},
	}, {
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "golden", Annotations: map[string]string{
			uploads.AnnotationRequest: uploads.Encode(uploads.Request{ID: "0123456789abcdef", Size: 2 << 20}),
		}},
	}}})
	w.Put("/apis/subresources.kubevirt.io/v1/namespaces/team-a/persistentvolumeclaims/golden/upload", uploads.State{
		Phase: uploads.Receiving, Received: 1 << 20, Size: 2 << 20,
	})
	const want = "" +
		"IMAGE    CLAIM    PHASE                             SIZE   USER     INSTANCETYPE   PREFERENCE   AGE\n" +
		"<none>   disk     Incomplete (3.0 MiB of 5.0 GiB)   0      <none>   <none>         <none>       <unknown>\n" +
		"<none>   golden   Uploading (1.0 MiB of 2.0 MiB)    0      <none>   <none>         <none>       <unknown>\n"
	if out, _, err := w.run("list"); err != nil || out != want {
		t.Errorf("%v\n%s", err, out)
	}
	if out, _, err := w.run("list", "-o", "jsonpath={.items[0].received} {.items[0].message}"); err != nil ||
		out != "3145728 cut" {
		t.Errorf("%v, %q", err, out)
	}
}

// TestRemoveAsks: where nobody can be asked the claim stays, unless --yes is given.
func TestRemoveAsks(t *testing.T) {
	w := newWorld(t)
	_, _, err := w.run("rm", "debian")
	if cli.ExitCode(err) != cli.ExitUsage || err.Error() != "this deletes claim team-a/debian-13, which has image "+
		"debian/13; add --yes to say that you mean it" {
		t.Error(err)
	}
	if out, _, err := w.run("rm", "debian", "--dry-run=client"); err != nil ||
		out != "image debian/13 deleted: claim debian-13 of namespace team-a (dry run)\n" {
		t.Errorf("%v, %q", err, out)
	}
	if n := w.deleted.Load(); n != 0 {
		t.Fatalf("the claim was deleted %d times", n)
	}
	if out, _, err := w.run("rm", "debian", "--yes"); err != nil ||
		out != "image debian/13 deleted: claim debian-13 of namespace team-a\n" || w.deleted.Load() != 1 {
		t.Errorf("%v, %q", err, out)
	}
	if _, _, err := w.run("rm", "debian/12", "--yes"); cli.ExitCode(err) != cli.ExitNotFound {
		t.Error(err)
	}
}

// What is there already is neither downloaded nor uploaded.
func TestPullOfWhatIsThere(t *testing.T) {
	w := newWorld(t)
	if out, _, err := w.run("pull", "debian/trixie"); err != nil ||
		out != "image debian/13 is there already: claim debian-13\n" {
		t.Errorf("%v, %q", err, out)
	}
	const note = "note: image debian/13 is there already, so --name, --size has no effect; " +
		"`virtctl image rm debian/13` deletes it\n"
	if _, said, err := w.run("pull", "debian", "--name", "mine", "--size", "9Gi"); err != nil || said != note {
		t.Errorf("flags that have no effect: %v, %q", err, said)
	}
	if out, _, err := w.run("pull", "debian", "-o", "jsonpath={.metadata.name}"); err != nil || out != "debian-13" {
		t.Errorf("%v, %q", err, out)
	}
}

// The catalogues of the cluster and of the namespace are read, and the user's own is the last word.
func TestCatalogues(t *testing.T) {
	w := newWorld(t)
	catalogue := func(title string) map[string]string {
		return map[string]string{images.ConfigMapKey: "apiVersion: cli.virtkit.io/v1\nkind: ImageCatalogue\nimages:\n" +
			"- {name: golden, version: '1', size: 1Gi, title: " + title + ", sources: [{arch: amd64, url: " +
			"'https://example.com/x', checksums: 'https://example.com/SUMS'}]}\n"}
	}
	title := func() string {
		t.Helper()
		out, errOut, err := w.run("show", "golden", "-o", "jsonpath={.images[0].title}")
		if err != nil || errOut != "" {
			t.Errorf("%v, %s", err, errOut)
		}
		return out
	}
	config := func(namespace, title string) {
		w.Put("/api/v1/namespaces/"+namespace+"/configmaps/"+images.ConfigMap, &corev1.ConfigMap{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Data: catalogue(title),
		})
	}
	config("kubevirt", "cluster")
	if got := title(); got != "cluster" {
		t.Errorf("the cluster's: %q", got)
	}
	config("team-a", "namespace")
	if got := title(); got != "namespace" {
		t.Errorf("the namespace's: %q", got)
	}
	if _, _, err := w.run("add", "golden/1", "--size=1Gi", "--title=own", "--url=https://example.com/x",
		"--checksums=https://example.com/SUMS"); err != nil {
		t.Fatal(err)
	}
	if got := title(); got != "own" {
		t.Errorf("the user's own: %q", got)
	}
	left, err := os.ReadDir(filepath.Join(w.dir, "virtkit"))
	if err != nil || len(left) != 2 || left[0].Name() != "images.yaml" || left[1].Name() != "images.yaml.lock" {
		t.Errorf("left: %v, %v", left, err)
	}
	// One that is faulty hides no other.
	w.Put("/api/v1/namespaces/kubevirt/configmaps/"+images.ConfigMap, &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		Data:     map[string]string{images.ConfigMapKey: "junk"},
	})
	if err := os.Remove(filepath.Join(w.dir, "virtkit", "images.yaml")); err != nil {
		t.Fatal(err)
	}
	out, said, err := w.run("show", "golden/1")
	if err != nil || !strings.Contains(out, "namespace") ||
		!strings.Contains(said, "note: a catalogue in the cluster is left out: ConfigMap kubevirt/"+images.ConfigMap) {
		t.Errorf("beside a faulty catalogue: %v, %s, %s", err, out, said)
	}
}

// A file is uploaded, whatever it is called; one that is not there is said at once. Only docker:// is a container
// image.
func TestImport(t *testing.T) {
	w := newWorld(t)
	var asked []uploads.Request
	w.Put("/apis/subresources.kubevirt.io/v1/namespaces/team-a/persistentvolumeclaims/golden-1/upload",
		http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			var request uploads.Request
			if err := json.NewDecoder(r.Body).Decode(&request); err != nil || r.Method != http.MethodPut {
				t.Errorf("%s: %v", r.Method, err)
			}
			asked = append(asked, request)
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(http.StatusForbidden)
			_, _ = rw.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden",` +
				`"message":"no","code":403}`))
		}))
	w.Put(claims, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		answer := `{"kind":"PersistentVolumeClaimList","apiVersion":"v1","items":[]}`
		if r.Method == http.MethodPost {
			rw.WriteHeader(http.StatusCreated)
			answer = `{"kind":"PersistentVolumeClaim","apiVersion":"v1","metadata":{"name":"golden-1"}}`
		}
		_, _ = rw.Write([]byte(answer))
	}))
	file := filepath.Join(w.dir, "golden.img")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for from, want := range map[string]uploads.Request{
		file:                            {Size: 1 << 20, Format: "raw"},
		"docker://example.com/golden:1": {ContainerDisk: &uploads.ContainerDisk{Image: "example.com/golden:1"}},
	} {
		asked = nil
		_, _, err := w.run("import", from, "golden/1", "--size", "1Gi")
		if len(asked) != 1 || asked[0].Size != want.Size ||
			!reflect.DeepEqual(asked[0].ContainerDisk, want.ContainerDisk) {
			t.Errorf("%s: %v, asked for %+v", from, err, asked)
		}
	}
	asked = nil
	if _, _, err := w.run("import", file+".none", "golden/1", "--size", "1Gi"); cli.ExitCode(err) != cli.ExitUsage ||
		len(asked) != 0 {
		t.Errorf("of a file that is not there: %v, %+v", err, asked)
	}
	_, _, err := w.run("import", "docker://example.com/UPPER", "golden/1", "--size", "1Gi")
	if cli.ExitCode(err) != cli.ExitUsage || len(asked) != 0 {
		t.Errorf("of no reference: %v, %+v", err, asked)
	}

	// A container image in the catalogue is pulled as one that is imported.
	add := []string{"add", "golden/1", "--size=1Gi", "--url=docker://example.com/golden:2"}
	if _, _, err := w.run(append(add, "--container-path=/disk/a.img", "--pull-secret=s")...); err != nil {
		t.Fatal(err)
	}
	want := &uploads.ContainerDisk{Image: "example.com/golden:2", Path: "/disk/a.img", PullSecret: "s"}
	_, said, err := w.run("pull", "golden", "--keep")
	if len(asked) != 1 || asked[0].Size != 0 || !reflect.DeepEqual(asked[0].ContainerDisk, want) ||
		!strings.Contains(said, "--keep has no effect") {
		t.Errorf("of the catalogue: %v, asked for %+v, said %s", err, asked, said)
	}

	// A claim that is there stays as it is, and that of another is not touched.
	wanted := "golden/0"
	w.Put(claims+"/golden-1", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		_, _ = rw.Write([]byte(`{"kind":"PersistentVolumeClaim","apiVersion":"v1","metadata":{"name":"golden-1",` +
			`"annotations":{"image.virtkit.io/wanted":"` + wanted + `"}},"spec":{"resources":{"requests":{"storage":"256Mi"}}}}`))
	}))
	if _, said, err := w.run("pull", "golden"); err == nil || !strings.Contains(err.Error(),
		"claim team-a/golden-1 is there already, and is not that of image golden/1: its disk would be replaced") {
		t.Errorf("of a claim of somebody's: %v, said %s", err, said)
	}
	wanted = "golden/1"
	const stays = "note: claim team-a/golden-1 is there already and is not made anew: it has 256Mi rather than 1Gi\n"
	if _, said, err := w.run("pull", "golden"); !strings.HasPrefix(said, stays) {
		t.Errorf("of a claim that is there: %v, said %s", err, said)
	}
	if left, err := os.ReadDir(filepath.Join(w.dir, "virtkit", "images")); err == nil {
		t.Errorf("downloaded: %v", left)
	}
	if _, _, err := w.run(append(add, "--checksum="+strings.Repeat("0", 64))...); cli.ExitCode(err) != cli.ExitUsage {
		t.Errorf("a checksum of a container image: %v", err)
	}
}

// An image that is a DataSource is listed and shown, and is not this program's to delete.
func TestDataSources(t *testing.T) {
	w := newWorld(t)
	const sources = "/apis/cdi.kubevirt.io/v1beta1/namespaces/team-a/datasources"
	w.Put(sources, map[string]any{"items": []any{map[string]any{
		"metadata": map[string]any{
			"namespace": "team-a", "name": "golden",
			"labels": map[string]any{"instancetype.kubevirt.io/default-preference": "rhel.9"},
		},
		"spec":   map[string]any{"source": map[string]any{"snapshot": map[string]any{"namespace": "x", "name": "y"}}},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}},
	}}})
	const want = "IMAGE           CLAIM               PHASE   SIZE     USER     INSTANCETYPE   PREFERENCE   AGE\n" +
		"debian/13       debian-13           Ready   5Gi      debian   <none>         <none>       <unknown>\n" +
		"golden/latest   datasource/golden   Ready   <none>   <none>   <none>         rhel.9       <unknown>\n"
	if out, _, err := w.run("list"); err != nil || out != want {
		t.Errorf("%v\n%s", err, out)
	}
	if out, _, err := w.run("show", "golden", "-o", "jsonpath={.image} {.dataSource}"); err != nil ||
		out != "golden/latest golden" {
		t.Errorf("%v, %q", err, out)
	}
	if _, _, err := w.run("show", "golden/9"); cli.ExitCode(err) != cli.ExitNotFound {
		t.Error(err)
	}
	// What is left of a pull goes before a DataSource that nobody has pulled.
	w.Put(claims, &corev1.PersistentVolumeClaimList{Items: []corev1.PersistentVolumeClaim{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "left", Annotations: map[string]string{
			uploads.AnnotationImage: "golden/2",
		}},
	}}})
	if out, _, err := w.run("rm", "golden", "--dry-run=client"); err != nil ||
		out != "image golden/2 deleted: claim left of namespace team-a (dry run)\n" {
		t.Errorf("%v, %q", err, out)
	}
	w.Put(claims, &corev1.PersistentVolumeClaimList{})
	_, _, err := w.run("rm", "golden", "--yes")
	if err == nil || !strings.HasPrefix(err.Error(), "image golden/latest is DataSource team-a/golden, which no pull "+
		"has made, and it is left to whoever has; `kubectl delete datasource golden -n team-a` deletes it") {
		t.Error(err)
	}
}

// What is there is offered as a DataSource, too, where the cluster has CDI; what keeps it is a note, and no failure.
func TestPullOffers(t *testing.T) {
	w := newWorld(t)
	const group = "/apis/cdi.kubevirt.io/v1beta1"
	w.Put(group, &metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "datasources"}}})
	w.Put(claims+"/debian-13", &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team-a", Name: "debian-13", UID: "u", Labels: map[string]string{
			uploads.LabelImage: "debian", uploads.LabelImageVersion: "13",
		},
	}})
	var made []map[string]any
	w.Put(group+"/namespaces/team-a/datasources", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPost {
			var object map[string]any
			if err := json.NewDecoder(r.Body).Decode(&object); err != nil {
				t.Error(err)
			}
			made = append(made, object)
			_ = json.NewEncoder(rw).Encode(object) // a client that has gone
			return
		}
		_, _ = rw.Write([]byte(`{"items":[]}`))
	}))
	out, said, err := w.run("pull", "debian/13", "-o", "jsonpath={.dataSource}")
	if err != nil || said != "" || out != "debian-13" || len(made) != 1 {
		t.Errorf("%v, %q, %q, made %v", err, out, said, made)
	}
	other := map[string]any{"namespace": "team-a", "name": "other"}
	w.Put(group+"/namespaces/team-a/datasources/debian-13", map[string]any{
		"spec": map[string]any{"source": map[string]any{"pvc": other}},
	})
	out, said, err = w.run("pull", "debian/13")
	if err != nil || out != "image debian/13 is there already: claim debian-13\n" || len(made) != 1 ||
		said != "note: image debian/13 has no DataSource: DataSource team-a/debian-13 is there already, and stands "+
			"for something else\n" {
		t.Errorf("%v, %q, %q, made %v", err, out, said, made)
	}
}
