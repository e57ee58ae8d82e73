package imageuploadcmd

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

const (
	uploadGroup = "/apis/upload.cdi.kubevirt.io/v1beta1"
	group       = "/apis/cdi.kubevirt.io/v1beta1"
	ofTeam      = "/namespaces/team-a/"
	config      = group + "/cdiconfigs/config"
	volumesPath = group + ofTeam + "datavolumes"
	volumePath  = volumesPath + "/disk"
	sourcesPath = group + ofTeam + "datasources"
)

// withCDI is a server with CDI, which takes at once what the proxy is sent.
type withCDI struct {
	*server
	proxy *httptest.Server

	mu      sync.Mutex
	sent    []byte
	sources []map[string]any
	volumes []map[string]any
}

func newCDI(t *testing.T) *withCDI {
	t.Helper()
	// What the native way would say.
	c := &withCDI{server: newServer(t, uploads.State{Phase: uploads.Succeeded, Format: "raw", SHA256: "ab"})}
	c.proxy = httptest.NewTLSServer(http.HandlerFunc(c.take))
	t.Cleanup(c.proxy.Close)
	c.Put(uploadGroup, &metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "uploadtokenrequests"}}})
	c.Put(group, &metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "datasources"}}})
	c.Put(config, map[string]any{"status": map[string]any{
		"uploadProxyURL": c.proxy.URL,
		"uploadProxyCA":  string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.proxy.Certificate().Raw})),
	}})
	c.Put(uploadGroup+ofTeam+"uploadtokenrequests", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion":"upload.cdi.kubevirt.io/v1beta1","kind":"UploadTokenRequest",`+
			`"status":{"token":"secret"}}`)
	}))
	c.Put(claimsPath, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.Put(claimPath, c.claim(map[string]string{"cdi.kubevirt.io/storage.pod.ready": "true"}))
		c.claims(w, r)
	}))
	made := func(into *[]map[string]any, then func()) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			var object map[string]any
			c.check(json.NewDecoder(r.Body).Decode(&object))
			c.mu.Lock()
			*into = append(*into, object)
			c.mu.Unlock()
			then()
			w.Header().Set("Content-Type", "application/json")
			c.check(json.NewEncoder(w).Encode(object))
		}
	}
	c.Put(volumesPath, made(&c.volumes, func() { c.Put(volumePath, phase("UploadReady")) }))
	c.Put(sourcesPath, made(&c.sources, func() {}))
	return c
}

func (c *withCDI) claim(annotations map[string]string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "disk", UID: "u", Annotations: annotations},
	}
}

func phase(of string) map[string]any {
	return map[string]any{
		"spec":   map[string]any{"source": map[string]any{"upload": map[string]any{}}},
		"status": map[string]any{"phase": of},
	}
}

// take is the upload proxy.
func (c *withCDI) take(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer secret" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if r.Method == http.MethodHead {
		return
	}
	data, err := io.ReadAll(r.Body)
	c.check(err)
	c.mu.Lock()
	c.sent = data
	c.mu.Unlock()
	c.Put(claimPath, c.claim(map[string]string{"cdi.kubevirt.io/storage.pod.phase": "Succeeded"}))
	c.Put(volumePath, phase("Succeeded"))
}

// TestWay has which way an image goes.
func TestWay(t *testing.T) {
	const cdi, native = "CDI", "the API server"
	for name, test := range map[string]struct {
		args    string
		prepare func(*withCDI)
		head    string // the image's first bytes
		way     string
		note    string
	}{
		"with CDI":                  {args: "pvc disk --size=1Gi", way: cdi},
		"a DataVolume":              {args: "dv disk --size=1Gi", way: cdi},
		"a DataVolume, in capitals": {args: "DV disk --size=1Gi", way: cdi},
		"as KubeVirt once had it":   {args: "--pvc-name=disk --pvc-size=1Gi", way: cdi},
		"native":                    {args: "pvc disk --size=1Gi --via=native", way: native},
		"a format that is said":     {args: "pvc disk --size=1Gi --format=raw", way: native},
		"zstd":                      {args: "pvc disk --size=1Gi", head: "\x28\xb5\x2f\xfd", way: native},
		"zstd, with CDI":            {args: "pvc disk --size=1Gi --via=cdi", head: "\x28\xb5\x2f\xfd", way: cdi},
		"zstd, a DataVolume":        {args: "dv disk --size=1Gi", head: "\x28\xb5\x2f\xfd", way: cdi},
		"xz":                        {args: "pvc disk --size=1Gi", head: "\xfd7zXZ\x00", way: cdi},
		"a proxy that is said": {
			args: "pvc disk --size=1Gi --insecure --uploadproxy-url=PROXY", way: cdi,
			prepare: func(c *withCDI) { c.Put(config, map[string]any{}) },
		},
		"no CDI": {
			args: "pvc disk --size=1Gi --insecure --uploadproxy-url=PROXY", way: native,
			prepare: func(c *withCDI) { c.Put(uploadGroup, nil) },
		},
		"a proxy of which nobody says the address": {
			args: "pvc disk --size=1Gi", way: native,
			note: "note: the image goes through the API server: CDI does not say the address of its upload proxy; " +
				"give it with --uploadproxy-url",
			prepare: func(c *withCDI) { c.Put(config, map[string]any{}) },
		},
		"one that has begun through the API server": {args: "pvc disk", way: native, prepare: func(c *withCDI) {
			c.withClaim()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCDI(t)
			if test.prepare != nil {
				test.prepare(c)
			}
			args := strings.Fields(strings.ReplaceAll(test.args, "PROXY", c.proxy.URL))
			file := image(t, "disk.raw", 1<<20)
			content := append([]byte(test.head), make([]byte, 1<<20-len(test.head))...)
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
			args = append(args, "--image-path", file, "-o", "jsonpath={.via} {.sha256}")
			out, said, err := c.run(args...)
			want := "native ab"
			if test.way == cdi {
				want = "cdi "
			}
			if err != nil || out != want || (len(c.sent) == 1<<20) != (test.way == cdi) ||
				(len(c.requests) == 1) != (test.way == native) {
				t.Errorf("%v, %q, %d bytes to CDI, %v to the API server", err, out, len(c.sent), c.requests)
			}
			if test.note == "" && said != "" || !strings.HasPrefix(said, test.note) {
				t.Errorf("said %q", said)
			}
		})
	}
}

// TestNoWay has what is refused, before anything is made.
func TestNoWay(t *testing.T) {
	for args, want := range map[string]string{
		"dv disk --size=1Gi": "a DataVolume needs CDI, and the cluster has not its upload API " +
			"(upload.cdi.kubevirt.io); `virtctl image-upload pvc disk` needs none",
		"pvc disk --size=1Gi --via=cdi":    "--via=cdi needs CDI, and the cluster has not its upload API",
		"pvc disk --size=1Gi --datasource": "--datasource needs CDI, which the cluster has not; leave it out",
	} {
		s := newServer(t, uploads.State{})
		_, _, err := s.run(append(strings.Fields(args), "--image-path", image(t, "disk.raw", 1<<20))...)
		if err == nil || !strings.HasPrefix(err.Error(), want) || len(s.made) > 0 || len(s.requests) > 0 {
			t.Errorf("%s: %v, made %v", args, err, s.made)
		}
	}
	for args, want := range map[string]string{
		"dv disk --size=1Gi --uploadproxy-url=http://proxy": `--uploadproxy-url: "http://proxy" is no address of an ` +
			"upload proxy: http shows the upload's token to others",
		"dv disk --size=1Gi --access-mode=ReadOnlyMany": "--access-mode: CDI cannot write to ReadOnlyMany",
		"dv disk --no-create --default-preference=x":    "--default-instancetype and --default-preference are for what",
		"dv disk --size=1Gi --storage-class=fats":       `--storage-class: storageclasses "fats" not found`,
	} {
		c := newCDI(t)
		_, _, err := c.run(append(strings.Fields(args), "--image-path", image(t, "disk.raw", 1<<20))...)
		if err == nil || !strings.HasPrefix(err.Error(), want) || len(c.volumes) > 0 || len(c.sent) > 0 {
			t.Errorf("%s: %v, made %v", args, err, c.volumes)
		}
	}
}

// TestDataVolume has what is made, and said, with CDI.
func TestDataVolume(t *testing.T) {
	c := newCDI(t)
	archive := filepath.Join(t.TempDir(), "files.tar")
	if err := os.WriteFile(archive, []byte("whatever"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, said, err := c.run("dv", "disk", "--size=1Gi", "--archive-path", archive, "--force-bind",
		"--volume-mode=Block", "--default-instancetype=u1.small", "--datasource")
	if err != nil || said != "" || out != "DataVolume disk has the files of files.tar: 8 bytes were sent in 1.5s\n" ||
		string(c.sent) != "whatever" {
		t.Errorf("%v, %q, %q", err, out, said)
	}
	const volume = `[{"apiVersion":"cdi.kubevirt.io/v1beta1","kind":"DataVolume","metadata":{"annotations":` +
		`{"cdi.kubevirt.io/storage.bind.immediate.requested":""},"labels":` +
		`{"instancetype.kubevirt.io/default-instancetype":"u1.small"},"name":"disk","namespace":"team-a"},"spec":` +
		`{"contentType":"archive","source":{"upload":{}},"storage":{"resources":{"requests":{"storage":"1Gi"}},` +
		`"volumeMode":"Block"}}}]`
	if got, err := json.Marshal(c.volumes); err != nil || string(got) != volume {
		t.Errorf("%v, made %s", err, got)
	}
	const source = `[{"apiVersion":"cdi.kubevirt.io/v1beta1","kind":"DataSource","metadata":{"labels":` +
		`{"instancetype.kubevirt.io/default-instancetype":"u1.small"},"name":"disk","namespace":"team-a"},"spec":` +
		`{"source":{"pvc":{"name":"disk","namespace":"team-a"}}}}]`
	if got, err := json.Marshal(c.sources); err != nil || string(got) != source {
		t.Errorf("%v, offered %s", err, got)
	}
}

// A claim that is there is taken as it is, and a note says how it differs.
func TestThere(t *testing.T) {
	c := newCDI(t)
	c.Put("/api/v1/namespaces/team-a/pods", &corev1.PodList{})
	c.Put(claimPath, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "disk", Annotations: map[string]string{
			"cdi.kubevirt.io/storage.upload.target": "", "cdi.kubevirt.io/storage.pod.ready": "true",
		}},
		Spec: corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		}},
	})
	_, said, err := c.run("pvc", "disk", "--size=2Gi", "--image-path", image(t, "disk.raw", 1<<20))
	if err != nil || len(c.sent) != 1<<20 || said != "note: claim team-a/disk is there already and is not made anew: "+
		"it has 1Gi rather than 2Gi\n" {
		t.Errorf("%v, %d bytes, said %q", err, len(c.sent), said)
	}
}

// A claim for which no image has come is named, so that it is no riddle later.
func TestLeft(t *testing.T) {
	for args, want := range map[string]string{
		"--size=1Gi": "note: claim team-a/disk was made for it and is left; the command uploads to it when it is " +
			"repeated; the other way is --via=native --no-create",
		"--no-create": "note: CDI holds claim team-a/disk ready for an upload: repeat the command or, before a VM " +
			"uses its disk, `kubectl annotate pvc disk -n team-a cdi.kubevirt.io/storage.upload.target-`; if part " +
			"of the image was sent, its disk is no longer whole, and only the first helps",
	} {
		c := newCDI(t)
		c.Put("/api/v1/namespaces/team-a/pods", &corev1.PodList{})
		if args == "--no-create" {
			ready := c.claim(map[string]string{"cdi.kubevirt.io/storage.pod.ready": "true"})
			c.Put(claimPath, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { // also of a patch
				w.Header().Set("Content-Type", "application/json")
				c.check(json.NewEncoder(w).Encode(ready))
			}))
		}
		c.Put(uploadGroup+ofTeam+"uploadtokenrequests", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden",`+
				`"message":"no","code":403}`)
		}))
		_, said, err := c.run("pvc", "disk", args, "--image-path", image(t, "disk.raw", 1<<20))
		if cli.ExitCode(err) != cli.ExitNotAllowed || said != want+"\n" {
			t.Errorf("%s: %v, said %q", args, err, said)
		}
	}
}
