package images

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/virtkit/virtkit/pkg/client/action"
)

// slow is a server that answers after a while, sends a byte of the disk each time that as long has passed, and stops
// before the byte at stop. It lasts as long as the request that it answers.
type slow struct {
	disk    []byte
	each    time.Duration
	stop    int
	ranges  []string
	answers int
}

func (s *slow) RoundTrip(r *http.Request) (*http.Response, error) {
	s.ranges = append(s.ranges, r.Header.Get("Range"))
	at, code := 0, http.StatusOK
	if r.Header.Get("Range") == "bytes=3-" {
		at, code = 3, http.StatusPartialContent
	}
	b := &drip{of: s, at: at, done: r.Context().Done(), err: r.Context().Err}
	if s.answers--; s.answers < 0 {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	time.Sleep(s.each) // of the bubble's clock
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Body: b, Request: r,
		ContentLength: int64(len(s.disk) - at),
	}, nil
}

// drip is the body of an answer.
type drip struct {
	of   *slow
	at   int
	done <-chan struct{}
	err  func() error
}

func (d *drip) Read(into []byte) (int, error) {
	if d.at == len(d.of.disk) {
		return 0, io.EOF
	}
	wait := time.NewTimer(d.of.each)
	defer wait.Stop()
	if d.at == d.of.stop {
		wait.Stop()
	}
	select {
	case <-wait.C:
		into[0] = d.of.disk[d.at]
		d.at++
		return 1, nil
	case <-d.done:
		return 0, d.err()
	}
}

func (d *drip) Close() error { return nil }

// A server that is slow is waited for; one that sends nothing for a minute is not, and what it has sent is kept.
func TestFetchStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := []byte("a disk")
		sum := sha256.Sum256(disk)
		server := &slow{disk: disk, each: patience - time.Second, stop: 3, answers: 2}
		f := &Fetcher{HTTP: &http.Client{Transport: server}, Dir: t.TempDir()}
		source := &Source{URL: "https://images.example/disk", Checksum: hex.EncodeToString(sum[:])}

		began := time.Now()
		_, err := f.Fetch(t.Context(), source)
		const want = "download https://images.example/disk: the server has sent nothing for 60s; what has come is " +
			"kept, and the download goes on from there when the command is repeated"
		var stalled *StalledError
		if !errors.As(err, &stalled) || !errors.Is(err, action.ErrTimeout) || err.Error() != want {
			t.Fatalf("%v", err)
		}
		if took := time.Since(began); took != 4*server.each+patience { // the answer, three bytes, and silence
			t.Errorf("it took %s", took)
		}

		server.stop = -1
		file, err := f.Fetch(t.Context(), source)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file.Path); err != nil || !bytes.Equal(got, disk) {
			t.Errorf("%q, %v", got, err)
		}
		if got := strings.Join(server.ranges, " "); got != " bytes=3-" {
			t.Errorf("asked for %q", got)
		}
	})
}

// A server that takes the request and does not answer is silent, too; the user's own interrupt is no silence.
func TestFetchUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &Fetcher{HTTP: &http.Client{Transport: &slow{}}, Dir: filepath.Join(t.TempDir(), "images")}
		source := &Source{URL: "https://images.example/disk", Checksums: "https://images.example/SUMS"}
		var stalled *StalledError
		_, err := f.Fetch(t.Context(), source)
		if !errors.As(err, &stalled) || !strings.HasPrefix(err.Error(), "download https://images.example/SUMS: the ") {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience/2)
		defer cancel()
		if _, err := f.Fetch(ctx, source); !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &stalled) {
			t.Errorf("%v", err)
		}
	})
}
