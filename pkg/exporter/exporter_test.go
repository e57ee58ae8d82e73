package exporter

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/virtkit/virtkit/pkg/names"
)

const token = "0123456789abcdefghij"

type export struct {
	http.Handler
	t testing.TB
	// disk and files are the directories of two claims, root has them and the token.
	root, disk, files string
}

func newExport(t testing.TB) *export {
	t.Helper()
	root := t.TempDir()
	e := &export{t: t, root: root, disk: filepath.Join(root, "disk"), files: filepath.Join(root, "files")}
	for _, dir := range []string{e.disk, e.files, filepath.Join(root, "manifests")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	e.write("token", token)
	e.write("manifests/all.json", `{"kind":"List"}`)
	e.write("manifests/all.yaml", "kind: List\n")
	e.Handler = NewHandler(Options{
		Name: "exp", Host: "virt-export-exp.ns.svc",
		Token: filepath.Join(root, "token"), Manifests: filepath.Join(root, "manifests"),
		Volumes: []Volume{{"a.b", e.disk, disk}, {"tree", e.files, tree}, {"dev", filepath.Join(root, "dev"), device}},
		Stall:   time.Minute, Log: slog.New(slog.DiscardHandler),
	})
	return e
}

func (e *export) write(name, content string) {
	e.t.Helper()
	if err := os.WriteFile(filepath.Join(e.root, name), []byte(content), 0o600); err != nil {
		e.t.Fatal(err)
	}
}

// get sends a request with the token and headers, each "name: value".
// answer is one of the server's, with a body that needs no closing.
type answer struct {
	StatusCode int
	Header     http.Header
	Body       io.Reader
}

func (e *export) get(path string, headers ...string) answer {
	e.t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set(names.HeaderExportToken, token)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	return answer{StatusCode: w.Code, Header: w.Header(), Body: w.Body}
}

func body(t testing.TB, r answer) string {
	t.Helper()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func unpack(t testing.TB, r answer) string {
	t.Helper()
	unpacker, err := gzip.NewReader(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(unpacker)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// sparse makes a disk with data in three places and holes between.
func (e *export) sparse(size int64) string {
	e.t.Helper()
	f, err := os.Create(filepath.Join(e.disk, "disk.img"))
	if err != nil {
		e.t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		e.t.Fatal(err)
	}
	random := make([]byte, 70000)
	_, _ = rand.Read(random)
	for _, at := range []int64{0, size/2 + 3, size - int64(len(random))} {
		if _, err := f.WriteAt(random, at); err != nil {
			e.t.Fatal(err)
		}
	}
	data, err := os.ReadFile(f.Name())
	if err != nil {
		e.t.Fatal(err)
	}
	return string(data)
}

// A claim that no guest has had has no disk yet.
func TestNoDiskYet(t *testing.T) {
	e := newExport(t)
	for _, path := range []string{"/volumes/a.b/disk.img", "/volumes/a.b/disk.img.gz", "/volumes/a.b/disk.qcow2"} {
		r := e.get(path)
		if text := body(t, r); r.StatusCode != http.StatusNotFound ||
			!strings.HasPrefix(text, "volume a.b has no disk yet, which the first start of a VM with it makes;") {
			t.Errorf("%s: %d %s", path, r.StatusCode, text)
		}
	}
}

func TestToken(t *testing.T) {
	e := newExport(t)
	e.write("disk/disk.img", "data")
	const path = "/volumes/a.b/disk.img"
	for name, tc := range map[string]struct {
		method, path, header, file string
		want                       int
	}{
		"header":         {"GET", path, token, token, 200},
		"parameter":      {"GET", path + "?" + names.HeaderExportToken + "=" + token, "", token, 200},
		"none":           {"GET", path, "", token, 401},
		"another's":      {"GET", path, "0123456789abcdefghiX", token, 401},
		"a part":         {"GET", path, token[:10], token, 401},
		"more":           {"GET", path, token + "x", token, 401},
		"empty":          {"GET", path, "", "", 401},
		"manifests":      {"GET", "/internal/manifests/all", "", token, 401},
		"what is not":    {"GET", "/volumes/none/disk.img", "", token, 401},
		"kubelet":        {"GET", "/exportready", "", token, 503},
		"written to":     {"PUT", path, token, token, 405},
		"head":           {"HEAD", path, token, token, 200},
		"another volume": {"GET", "/volumes/tree/disk.img", token, token, 404},
		"no volume":      {"GET", "/volumes/..%2ftoken/disk.img", token, token, 404},
		"no path":        {"GET", "/", token, token, 404},
	} {
		e.write("token", tc.file)
		r := httptest.NewRequest(tc.method, tc.path, nil)
		if tc.header != "" {
			r.Header.Set(names.HeaderExportToken, tc.header)
		}
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		if w.Code != tc.want {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
		if strings.Contains(w.Body.String(), token) {
			t.Errorf("%s: the answer has the token", name)
		}
	}
	if err := os.Remove(filepath.Join(e.root, "token")); err != nil {
		t.Fatal(err)
	}
	if r := e.get(path); r.StatusCode != http.StatusUnauthorized || !strings.Contains(body(t, r), `key "token"`) {
		t.Errorf("without a token's file: %d", r.StatusCode)
	}
}

func TestRaw(t *testing.T) {
	e := newExport(t)
	const path = "/volumes/a.b/disk.img"
	want := e.sparse(1 << 20)
	whole := e.get(path)
	tag := whole.Header.Get("ETag")
	if body(t, whole) != want || tag == "" || whole.Header.Get(names.HeaderDiskSize) != "1048576" {
		t.Errorf("whole: %v", whole.Header)
	}
	for header, tc := range map[string]struct {
		code int
		want string
	}{
		"bytes=5-9":            {206, want[5:10]},
		"bytes=1048570-":       {206, want[1048570:]},
		"bytes=-3":             {206, want[len(want)-3:]},
		"bytes=1048576-":       {416, ""},
		"bytes=9-5":            {416, ""},
		"bytes=x":              {416, ""},
		"bytes=-":              {416, ""},
		"lines=1-2":            {416, ""},
		"bytes=0-99999999999":  {206, want},
		"bytes=18446744073709": {416, ""},
	} {
		r := e.get(path, "Range: "+header, "If-Range: "+tag)
		if got := body(t, r); r.StatusCode != tc.code || tc.want != "" && got != tc.want {
			t.Errorf("%s: %d, %d bytes", header, r.StatusCode, len(got))
		}
	}
	if r := e.get(path, "If-None-Match: "+tag); r.StatusCode != http.StatusNotModified {
		t.Errorf("nothing new: %d", r.StatusCode)
	}
	// What a part of another content would be added to begins anew.
	other := e.sparse(1 << 20)
	r := e.get(path, "Range: bytes=5-9", "If-Range: "+tag)
	if got := body(t, r); r.StatusCode != http.StatusOK || got != other || r.Header.Get("ETag") == tag {
		t.Errorf("a part of another disk: %d, tag %s", r.StatusCode, r.Header.Get("ETag"))
	}
	e.write("dev", "device")
	if got := body(t, e.get("/volumes/dev/disk.img", "Range: bytes=2-3")); got != "vi" {
		t.Errorf("of a device %q", got)
	}
	// What a device has is not known after an end of the server, unless nobody else has the device.
	for tag, same := range map[string]bool{"": false, "uid": true} {
		var tags []string
		for range 2 {
			o := e.Handler.(*handler).Options
			o.Tag = tag
			e.Handler = NewHandler(o)
			tags = append(tags, e.get("/volumes/dev/disk.img").Header.Get("ETag"))
		}
		if (tags[0] == tags[1]) != same {
			t.Errorf("with the tag %q a device's ETags are %v", tag, tags)
		}
	}
}

func TestGzip(t *testing.T) {
	e := newExport(t)
	const path = "/volumes/a.b/disk.img.gz"
	want := e.sparse(3*part + 12345)
	whole := e.get(path)
	packed := body(t, whole)
	whole.Body = io.NopCloser(strings.NewReader(packed))
	if got := unpack(t, whole); got != want {
		t.Errorf("%d bytes instead of %d", len(got), len(want))
	}
	if len(packed) > 4*70000 {
		t.Errorf("three times 70000 bytes take %d", len(packed))
	}
	tag := whole.Header.Get("ETag")
	for _, at := range []int64{1, part, 2*part + 7, int64(len(want))} {
		r := e.get(path+"?offset="+strconv.FormatInt(at, 10), "If-Match: "+tag)
		if got := unpack(t, r); got != want[at:] {
			t.Errorf("from %d: %d bytes instead of %d", at, len(got), int64(len(want))-at)
		}
	}
	for _, wrong := range []string{"-1", "x", "0x10", strconv.Itoa(len(want) + 1), "9223372036854775808", "1.5"} {
		if r := e.get(path + "?offset=" + wrong); r.StatusCode != http.StatusBadRequest {
			t.Errorf("offset %s: %d", wrong, r.StatusCode)
		}
	}
	if r := e.get(path, `If-Match: "other"`); r.StatusCode != http.StatusPreconditionFailed {
		t.Errorf("another disk: %d", r.StatusCode)
	}
	e.write("disk/disk.img", "")
	if got := unpack(t, e.get(path)); got != "" {
		t.Errorf("of an empty disk %d bytes", len(got))
	}
}

// A download under way has no good end when its disk changes.
func TestChangesMeanwhile(t *testing.T) {
	for _, path := range []string{"/volumes/a.b/disk.img", "/volumes/a.b/disk.img.gz"} {
		e := newExport(t)
		data := make([]byte, 4*part) // more than is on its way at once, also packed
		_, _ = rand.Read(data)
		e.write("disk/disk.img", string(data))
		server := httptest.NewServer(e.Handler)
		r, err := http.NewRequest(http.MethodGet, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(names.HeaderExportToken, token)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, response.Body, 1000); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(e.disk, "disk.img")
		if err := os.Chtimes(name, time.Time{}, time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, response.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s ended with %v", path, err)
		}
		response.Body.Close()
		server.Close()
	}
}

// Nothing on a claim leads out of it, and nothing on it makes the server wait.
func TestHostileClaim(t *testing.T) {
	e := newExport(t)
	outside := filepath.Join(e.root, "token")
	e.write("files/plain", "plain")
	for name, target := range map[string]string{
		"files/absolute": outside, "files/relative": "../token", "files/up": "..", "files/inside": "plain",
		"disk/disk.img": outside,
	} {
		if err := os.Symlink(target, filepath.Join(e.root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(e.files, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{
		"/volumes/tree/dir/plain":       200,
		"/volumes/tree/dir/inside":      200,
		"/volumes/tree/dir/absolute":    403,
		"/volumes/tree/dir/relative":    403,
		"/volumes/tree/dir/up/token":    403,
		"/volumes/tree/dir/../../token": 404,
		"/volumes/tree/dir/pipe":        403,
		"/volumes/tree/dir/none":        404,
		"/volumes/a.b/disk.img":         500,
		"/volumes/a.b/disk.img.gz":      500,
	} {
		r := e.get(path)
		if got := body(t, r); r.StatusCode != want || strings.Contains(got, token) {
			t.Errorf("%s: %d %s", path, r.StatusCode, got)
		}
	}
	list := e.get("/volumes/tree/dir/")
	if got := body(t, list); list.StatusCode != http.StatusOK || !strings.Contains(got, "plain") {
		t.Errorf("list: %d %s", list.StatusCode, got)
	}
	if list.Header.Get("Content-Security-Policy") == "" || list.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("a browser may run what is listed: %v", list.Header)
	}
	if err := os.Remove(filepath.Join(e.disk, "disk.img")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(e.disk, "disk.img"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := e.get("/volumes/a.b/disk.img"); r.StatusCode != http.StatusInternalServerError {
		t.Errorf("a disk that is a pipe: %d", r.StatusCode)
	}
	if err := os.Remove(filepath.Join(e.disk, "disk.img")); err != nil {
		t.Fatal(err)
	}
	if r := e.get("/volumes/a.b/disk.img"); r.StatusCode != http.StatusNotFound {
		t.Errorf("a disk that is not there: %d", r.StatusCode)
	}
}

func TestArchive(t *testing.T) {
	e := newExport(t)
	for _, dir := range []string{"files/sub", "files/lost+found"} {
		if err := os.Mkdir(filepath.Join(e.root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	e.write("files/sub/one", "1")
	e.write("files/two", "22")
	e.write("files/lost+found/x", "x")
	if err := os.Symlink("../../token", filepath.Join(e.files, "sub", "link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(e.files, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := e.get("/volumes/tree/disk.tar.gz")
	archive := tar.NewReader(strings.NewReader(unpack(t, r)))
	got := map[string]string{}
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		got[header.Name] = string(data) + header.Linkname
	}
	want := map[string]string{"./": "", "sub/": "", "sub/one": "1", "two": "22", "sub/link": "../../token"}
	if len(got) != len(want) {
		t.Errorf("%v", got)
	}
	for name, data := range want {
		if found, ok := got[name]; !ok || found != data {
			t.Errorf("%s: %q", name, found)
		}
	}
	root, err := os.OpenRoot(e.files)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	info := fileInfo{mode: 0o600, name: "pipe"}
	if err := readable(root, "pipe", info); err == nil {
		t.Error("a file that became a pipe is read")
	}
}

type fileInfo struct {
	fs.FileInfo
	mode fs.FileMode
	name string
}

func (f fileInfo) Mode() fs.FileMode { return f.mode }

func TestManifests(t *testing.T) {
	e := newExport(t)
	if got := body(t, e.get("/internal/manifests/all")); got != `{"kind":"List"}` {
		t.Error(got)
	}
	r := e.get("/internal/manifests/all", "Accept: application/yaml")
	if got := body(t, r); got != "kind: List\n" || r.Header.Get("Content-Type") != "application/yaml" {
		t.Error(got)
	}
	if got := body(t, e.get("/internal/manifests/secret", "Accept: application/yaml")); got != `apiVersion: v1
kind: Secret
metadata:
  name: header-secret-exp
stringData:
  token: "x-kubevirt-export-token:0123456789abcdefghij"
---
` {
		t.Error(got)
	}
	var list struct {
		Items []struct{ StringData map[string]string }
	}
	if err := json.Unmarshal([]byte(body(t, e.get("/internal/manifests/secret"))), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].StringData["token"] != "x-kubevirt-export-token:"+token {
		t.Errorf("%+v", list)
	}
}

// FuzzRequest sends any path, range and offset of who has no token or has it: no answer has what is beside the claims.
func FuzzRequest(f *testing.F) {
	f.Add("/volumes/tree/dir/up/token", "bytes=0-", "0", true)
	f.Add("/volumes/a.b/disk.img.gz", "bytes=1-2,3-4", "-1", true)
	f.Add("/volumes/tree/disk.tar.gz", "", "", false)
	f.Add("/volumes/a.b/disk.qcow2", "bytes=70000-", "", true)
	e := newExport(f)
	e.sparse(100000 * 2)
	e.write("files/plain", "plain")
	e.write("beside", "beside-the-claims")
	for name, target := range map[string]string{"up": "..", "beside": "../beside"} {
		if err := os.Symlink(target, filepath.Join(e.files, name)); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, path, ranges, offset string, admitted bool) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.Path = path
		r.URL.RawQuery = "offset=" + offset
		r.Header.Set("Range", ranges)
		if admitted {
			r.Header.Set(names.HeaderExportToken, token)
		}
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		if !admitted && w.Code == http.StatusOK && path != names.ExportReady {
			t.Errorf("%q without a token: %d", path, w.Code)
		}
		if bytes.Contains(w.Body.Bytes(), []byte("beside-the-claims")) {
			t.Errorf("%q leads out of the claim", path)
		}
	})
}

// The kubelet hears that the server is ready when it can read the devices, which virt-handler gives to the process at
// the socket.
func TestDevices(t *testing.T) {
	e := newExport(t)
	o := Options{Socket: filepath.Join(t.TempDir(), "s"), Volumes: []Volume{{"d", "/dev/null", device}}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 { // once more after a restart of the container
		if err := o.show(ctx); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := net.Dial("unix", o.Socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if r := e.get("/exportready"); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("without its device it is ready: %d", r.StatusCode)
	}
	e.write("dev", "device")
	if r := e.get("/exportready"); r.StatusCode != http.StatusOK {
		t.Errorf("with its device it is not ready: %d", r.StatusCode)
	}
	o = Options{Socket: filepath.Join(t.TempDir(), "s")}
	if err := o.show(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(o.Socket); err == nil {
		t.Error("without devices there is a socket")
	}
}
