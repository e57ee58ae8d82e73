package exporter

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/imageformat"
)

const qcow2Path = "/volumes/a.b/disk.qcow2"

// qemuImg runs qemu-img, or skips the test where there is none.
func qemuImg(t testing.TB, args ...string) string {
	t.Helper()
	path, err := exec.LookPath("qemu-img")
	if err != nil {
		t.Skip("there is no qemu-img")
	}
	out, err := exec.Command(path, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("qemu-img %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// content is a disk of all kinds of clusters: random ones, text, zeros, and a last one that is cut.
func content(size int64) []byte {
	data := make([]byte, size)
	const cluster = 1 << 16
	random := mathrand.New(mathrand.NewPCG(1, 2))
	for at := int64(0); at < size; at += cluster {
		c := data[at:min(at+cluster, size)]
		switch random.IntN(5) {
		case 0:
			_, _ = rand.Read(c)
		case 1:
			copy(c, strings.Repeat("all work and no play makes a disk that is easily compressed. ", 2000))
		case 2: // zeros but for a bit
			c[random.IntN(len(c))] = 1
		case 3: // long matches far back, which QEMU's decompression would not find
			_, _ = rand.Read(c[:len(c)/4])
			copy(c[len(c)/2:], c[:len(c)/4])
		}
	}
	return data
}

// What is served as qcow2 is an image without a fault, smaller than the disk, that QEMU reads as the disk was.
func TestQCOW2(t *testing.T) {
	for _, size := range []int64{0, 1, 512, 65536, 65537, 3<<20 + 700, 50 << 20} {
		e := newExport(t)
		want := content(size)
		e.write("disk/disk.img", string(want))
		r := e.get(qcow2Path)
		got := body(t, r)
		if r.StatusCode != http.StatusOK || r.Header.Get("Content-Length") != strconv.Itoa(len(got)) ||
			r.Header.Get("Virtkit-Disk-Size") != strconv.FormatInt(size, 10) {
			t.Fatalf("%d bytes: %d %v", size, r.StatusCode, r.Header)
		}
		dir := t.TempDir()
		image, raw := filepath.Join(dir, "qcow2"), filepath.Join(dir, "raw")
		if err := os.WriteFile(image, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		if size > 0 { // nobody takes an image of nothing
			head, err := imageformat.Check(strings.NewReader(got), int64(len(got)), imageformat.QCOW2)
			if err != nil || head.VirtualSize != up(size, 512)*512 {
				t.Errorf("%d bytes: our own import reads %+v: %v", size, head, err)
			}
		}
		if said := qemuImg(t, "check", "-f", "qcow2", image); !strings.Contains(said, "No errors were found") {
			t.Errorf("%d bytes: %s", size, said)
		}
		qemuImg(t, "convert", "-f", "qcow2", "-O", "raw", image, raw)
		read, err := os.ReadFile(raw)
		if err != nil {
			t.Fatal(err)
		}
		if int64(len(read)) != up(size, 512)*512 || !bytes.Equal(read[:size], want) ||
			len(bytes.Trim(read[size:], "\x00")) > 0 {
			t.Errorf("%d bytes: QEMU reads %d, and not the same", size, len(read))
		}
		if size > 10<<20 && len(got)*2 > len(want) {
			t.Errorf("%d bytes, of which most are alike, take %d", size, len(got))
		}
	}
}

// The image is the same by whatever ranges it comes, also from a server that has measured the disk anew.
func TestQCOW2Ranges(t *testing.T) {
	e := newExport(t)
	e.write("disk/disk.img", string(content(5<<20)))
	whole := e.get(qcow2Path)
	want, tag := body(t, whole), whole.Header.Get("ETag")
	random := mathrand.New(mathrand.NewPCG(3, 4))
	for n := range 60 {
		if n%20 == 0 { // as after an eviction
			e.Handler = NewHandler(Options{
				Name: "exp", Token: filepath.Join(e.root, "token"), Volumes: []Volume{{"a.b", e.disk, disk}},
				Stall: 1e9, Log: e.Handler.(*handler).Log,
			})
		}
		from := random.IntN(len(want))
		to := min(from+random.IntN(200000), len(want)-1)
		r := e.get(qcow2Path, fmt.Sprintf("Range: bytes=%d-%d", from, to), "If-Match: "+tag)
		if got := body(t, r); r.StatusCode != http.StatusPartialContent || got != want[from:to+1] {
			t.Fatalf("bytes %d to %d: %d, %d bytes", from, to, r.StatusCode, len(got))
		}
	}
	if r := e.get(qcow2Path, "Range: bytes="+strconv.Itoa(len(want))+"-", "If-Match: "+tag); r.StatusCode !=
		http.StatusRequestedRangeNotSatisfiable {
		t.Errorf("after the end: %d", r.StatusCode)
	}
	if raw := e.get("/volumes/a.b/disk.img"); raw.Header.Get("ETag") == tag {
		t.Error("the image has the disk's ETag")
	}
	e.write("disk/disk.img", string(content(5 << 20)[1:]))
	if r := e.get(qcow2Path, "Range: bytes=5-", "If-Match: "+tag); r.StatusCode != http.StatusPreconditionFailed {
		t.Errorf("of another disk: %d", r.StatusCode)
	}
}

// A disk that changes after it was measured has no good end, at whatever place it does.
func TestQCOW2Changes(t *testing.T) {
	for name, change := range map[string]func([]byte){
		"a compressed cluster": func(data []byte) { _, _ = rand.Read(data[:1<<16]) },
		"the last bytes":       func(data []byte) { data[len(data)-1] ^= 1 },
	} {
		file := filepath.Join(t.TempDir(), "disk")
		data := bytes.Repeat([]byte("compressible"), 1<<18)
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		disk, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer disk.Close()
		info, err := disk.Stat()
		if err != nil {
			t.Fatal(err)
		}
		l, err := measure(t.Context(), disk, info.Size())
		if err != nil {
			t.Fatal(err)
		}
		change(data)
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, info.ModTime(), info.ModTime().Add(1)); err != nil {
			t.Fatal(err)
		}
		q := newQCOW2(l, &image{File: disk, size: info.Size(), info: info})
		if _, err := io.Copy(io.Discard, q); !errors.Is(err, errChanged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Who has gone needs no measured disk; a disk whose tables would take more memory than the server has is refused.
func TestMeasure(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := measure(ctx, file, 1<<30); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	for size, want := range map[int64]uint{0: 16, 64 << 30: 16, 64<<30 + 1<<20: 17, 2 << 40: 21, 4 << 40: 21} {
		if bits, err := clusterBits(size); err != nil || bits != want {
			t.Errorf("%d bytes: clusters of 2^%d: %v", size, bits, err)
		}
	}
	e := newExport(t)
	e.write("disk/disk.img", "")
	if err := os.Truncate(filepath.Join(e.disk, "disk.img"), 4<<40+2<<20); err != nil {
		t.Skipf("the file system has no such large files: %v", err)
	}
	if r := e.get(qcow2Path); r.StatusCode != http.StatusUnprocessableEntity ||
		!strings.Contains(body(t, r), "too large to be served as qcow2") {
		t.Errorf("of 4 TiB: %d", r.StatusCode)
	}
}

// Larger clusters, of which a disk of this size is not served, are as good, and so are several tables of each kind.
func TestQCOW2Layouts(t *testing.T) {
	const size = 40 << 20
	want := content(size)
	for _, bits := range []uint{9, 12, 17, 21} {
		dir := t.TempDir()
		file := filepath.Join(dir, "disk")
		if err := os.WriteFile(file, want, 0o600); err != nil {
			t.Fatal(err)
		}
		disk, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer disk.Close()
		l, err := measureClusters(t.Context(), disk, size, bits)
		if err != nil {
			t.Fatal(err)
		}
		q := newQCOW2(l, &image{File: disk, size: size})
		file = filepath.Join(dir, "qcow2")
		out, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(out, q); err != nil {
			t.Fatal(err)
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		if said := qemuImg(t, "check", "-f", "qcow2", file); !strings.Contains(said, "No errors were found") {
			t.Errorf("clusters of 2^%d: %s", bits, said)
		}
		qemuImg(t, "compare", "-f", "qcow2", "-F", "raw", file, filepath.Join(dir, "disk"))
	}
}

// limited is a listener whose connections note until when the server reads from them.
type limited struct {
	net.Listener
	conns chan *limitedConn
}

type limitedConn struct {
	net.Conn
	mu    sync.Mutex
	until []time.Time
}

func (l limited) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &limitedConn{Conn: conn}
	l.conns <- c
	return c, nil
}

func (c *limitedConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = append(c.until, t)
	return c.Conn.SetReadDeadline(t)
}

// A disk may take longer to measure than a request may take to come: what bounds the one does not bound the other.
func TestQCOW2OutlivesReadTimeout(t *testing.T) {
	e := newExport(t)
	random := make([]byte, 1<<20)
	_, _ = rand.Read(random)
	e.write("disk/disk.img", string(random))
	conns, until := make(chan *limitedConn, 1), make(chan []time.Time, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.ServeHTTP(w, r)
		conn := <-conns
		conn.mu.Lock()
		defer conn.mu.Unlock()
		until <- conn.until
	}))
	server.Listener = limited{server.Listener, conns}
	server.Config.ReadTimeout = time.Hour
	server.Start()
	defer server.Close()
	r, err := http.NewRequest(http.MethodGet, server.URL+qcow2Path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(names.HeaderExportToken, token)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	n, err := io.Copy(io.Discard, response.Body)
	if err != nil || response.StatusCode != http.StatusOK || n < int64(len(random)) {
		t.Errorf("%s, %d bytes: %v", response.Status, n, err)
	}
	if got := <-until; len(got) < 2 || got[0].IsZero() || !got[len(got)-1].IsZero() {
		t.Errorf("a request and its answer have until %v", got)
	}
}
