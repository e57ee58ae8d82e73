package images

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/virtkit/virtkit/pkg/client/action"
)

// publisher is a server with an image and its checksums.
type publisher struct {
	*httptest.Server
	disk []byte
	// sums replaces the file of checksums.
	sums string
	// cut ends the first answer after so many bytes.
	cut int
	// ranges are the ranges that were asked for.
	ranges []string
	plain  bool
}

func newPublisher(t *testing.T) *publisher {
	t.Helper()
	p := &publisher{disk: bytes.Repeat([]byte("disk"), 1<<16)}
	mux := http.NewServeMux()
	mux.HandleFunc("/disk.img", func(w http.ResponseWriter, r *http.Request) {
		p.ranges = append(p.ranges, r.Header.Get("Range"))
		if p.plain {
			r.Header.Del("Range")
		}
		if cut := p.cut; cut > 0 {
			p.cut = 0
			w.Header().Set("Content-Length", fmt.Sprint(len(p.disk)))
			_, _ = w.Write(p.disk[:cut])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(p.disk))
	})
	mux.HandleFunc("/SUMS", func(w http.ResponseWriter, _ *http.Request) {
		text := p.sums
		if text == "" {
			digest := sha256.Sum256(p.disk)
			text = hex.EncodeToString(digest[:]) + "  disk.img\n"
		}
		_, _ = w.Write([]byte(text))
	})
	mux.HandleFunc("/down", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+r.Host+"/SUMS", http.StatusFound)
	})
	p.Server = httptest.NewTLSServer(mux)
	t.Cleanup(p.Close)
	return p
}

func (p *publisher) source() *Source {
	return &Source{Arch: "amd64", URL: p.URL + "/disk.img", Checksums: p.URL + "/SUMS"}
}

func TestFetch(t *testing.T) {
	p := newPublisher(t)
	p.cut = 1000
	var last int64
	f := &Fetcher{HTTP: p.Client(), Dir: filepath.Join(t.TempDir(), "images")}
	f.Show = func(have, _ int64) { last = have }
	if _, err := f.Fetch(t.Context(), p.source()); err == nil || !strings.Contains(err.Error(), "unexpected EOF") ||
		!strings.Contains(err.Error(), "after 1000 bytes") || !strings.Contains(err.Error(), "repeat the command") {
		t.Fatalf("an answer that was cut: %v", err)
	}
	file, err := f.Fetch(t.Context(), p.source())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file.Path); err != nil || !bytes.Equal(got, p.disk) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if last != int64(len(p.disk)) {
		t.Errorf("shown: %d of %d", last, len(p.disk))
	}
	if _, err := f.Fetch(t.Context(), p.source()); err != nil {
		t.Error(err)
	}
	if got := fmt.Sprint(p.ranges); got != "[ bytes=1000-]" {
		t.Errorf("asked for %s: what is there is not asked for again", got)
	}
}

// A server without ranges sends all of it again.
func TestFetchWithoutRanges(t *testing.T) {
	p := newPublisher(t)
	p.cut, p.plain = 1000, true
	f := &Fetcher{HTTP: p.Client(), Dir: t.TempDir()}
	if _, err := f.Fetch(t.Context(), p.source()); err == nil {
		t.Fatal("an answer that was cut is no error")
	}
	if _, err := f.Fetch(t.Context(), p.source()); err != nil {
		t.Error(err)
	}
}

func TestFetchRefuses(t *testing.T) {
	p := newPublisher(t)
	dir := t.TempDir()
	f := &Fetcher{HTTP: p.Client(), Dir: dir}

	p.sums = strings.Repeat("0", 64) + "  disk.img"
	var mismatch *MismatchError
	if _, err := f.Fetch(t.Context(), p.source()); !errors.As(err, &mismatch) {
		t.Errorf("a file with another checksum: %v", err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || !strings.HasSuffix(left[0].Name(), ".lock") {
		t.Errorf("left: %v, %v", left, err)
	}

	p.sums = strings.Repeat("x", maxSums+1)
	_, err = f.Fetch(t.Context(), p.source())
	if err == nil || !strings.Contains(err.Error(), "is no file of checksums") {
		t.Errorf("endless checksums: %v", err)
	}

	s := p.source()
	s.Checksums = p.URL + "/nothing"
	var status *StatusError
	if _, err := f.Fetch(t.Context(), s); !errors.As(err, &status) || status.Code != http.StatusNotFound {
		t.Errorf("no checksums: %v", err)
	}
	s.Checksums = p.URL + "/down"
	if _, err := f.Fetch(t.Context(), s); err == nil || !strings.Contains(err.Error(), "which has not https") {
		t.Errorf("a redirect to http: %v", err)
	}
}

// TestServerOfImageIsNoCluster: what fails on the way to the server of an image names that server, also the one that
// another redirects to.
func TestServerOfImageIsNoCluster(t *testing.T) {
	t.Parallel()
	broken := &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	f := &Fetcher{HTTP: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: r, Body: http.NoBody}
		switch r.URL.Host {
		case "mirrors.example":
			answer.StatusCode = http.StatusFound
			answer.Header.Set("Location", "https://nowhere.example"+r.URL.Path)
		case "broken.example":
			answer.Body = io.NopCloser(iotest.ErrReader(broken))
		default:
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Name: r.URL.Host, IsNotFound: true}}
		}
		return answer, nil
	})}, Dir: t.TempDir()}
	for address, want := range map[string]string{
		"https://images.example/disk": "images.example", "https://mirrors.example/disk": "nowhere.example",
		"https://broken.example/disk": "broken.example",
	} {
		err := f.download(t.Context(), address, filepath.Join(f.Dir, want))
		var other *action.HostError
		if !errors.As(err, &other) || other.Host != want {
			t.Errorf("%s: %v is not of host %s", address, err, want)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
