package guest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/stream/copyfile"
	"github.com/virtkit/virtkit/pkg/stream/exec"
)

// against opens streams to a server of copies.
func against(t *testing.T, serve func(*stream.Conn)) Opener {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := stream.Accept(w, r, stream.Options{})
		if err != nil {
			return
		}
		defer conn.Close()
		if channel, _, err := exec.ReadFrame(conn); err == nil && channel == copyfile.ChannelRequest {
			serve(conn)
		}
	}))
	t.Cleanup(server.Close)
	return func(ctx context.Context) (*stream.Conn, error) {
		return stream.Dial(ctx, &rest.Config{Host: server.URL}, "/copyfile", url.Values{}, stream.Options{})
	}
}

// Whoever interrupts a pull keeps the file that was there, and nothing beside it.
func TestPullInterrupted(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "x")
	if err := os.WriteFile(name, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := against(t, func(conn *stream.Conn) {
		exec.WriteJSON(conn, copyfile.ChannelOpened, copyfile.Opened{Path: "/x"})
		exec.WriteAll(conn, copyfile.ChannelData, []byte("half"))
		io.Copy(io.Discard, conn)
	})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Pull{Path: "/x", File: name, Read: func(int64) { cancel() }}.Run(ctx, open)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	entries, err := os.ReadDir(dir)
	data, readErr := os.ReadFile(name)
	if err != nil || readErr != nil || len(entries) != 1 || string(data) != "old" {
		t.Errorf("%v, %q, %v, %v", entries, data, err, readErr)
	}
}

// A source that breaks is what the user hears of, and the server never takes half of it for the whole.
func TestPushOfABrokenSource(t *testing.T) {
	ended := make(chan error, 1)
	open := against(t, func(conn *stream.Conn) {
		for {
			if _, payload, err := exec.ReadFrame(conn); err != nil || len(payload) == 0 {
				ended <- err
				return
			}
		}
	})
	broken := errors.New("the disk is broken")
	_, err := Push{Path: "/x", Source: io.MultiReader(strings.NewReader("half"), failing{broken})}.Run(t.Context(),
		open)
	if !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	if err := <-ended; err == nil {
		t.Error("the server was told that this is all")
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// A server that says it is done before it can be, or has counted otherwise, is not believed.
func TestPushIsCompared(t *testing.T) {
	hold, release := io.Pipe()
	defer release.Close()
	early := against(t, func(conn *stream.Conn) { exec.WriteJSON(conn, copyfile.ChannelResult, copyfile.Result{}) })
	if _, err := (Push{Path: "/x", Source: hold}).Run(t.Context(), early); err == nil ||
		!strings.Contains(err.Error(), "before all of it was sent") {
		t.Errorf("early: %v", err)
	}
	for want, result := range map[string]copyfile.Result{
		"has counted 2":    {Bytes: 2},
		"another checksum": {Bytes: 3, SHA256: "ab"},
	} {
		open := against(t, func(conn *stream.Conn) {
			for {
				if _, payload, err := exec.ReadFrame(conn); err != nil || len(payload) == 0 {
					break
				}
			}
			exec.WriteJSON(conn, copyfile.ChannelResult, result)
		})
		var about *FileError
		_, err := (Push{Path: "/x", Source: strings.NewReader("abc")}).Run(t.Context(), open)
		if !errors.As(err, &about) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// No more is on its way than the guest takes in a moment: what proxies hold would still be written after an
// interruption.
func TestPushDoesNotRunAhead(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	got, ended := int64(0), make(chan struct{})
	open := against(t, func(conn *stream.Conn) {
		defer close(ended)
		for {
			_, payload, err := exec.ReadFrame(conn)
			if got += int64(len(payload)); err != nil {
				return
			}
			switch { // the guest takes the first half of what may be under way, and no more
			case got == mostUnderWay/2:
				exec.WriteJSON(conn, copyfile.ChannelWritten, copyfile.Written{Bytes: got})
			case got >= mostUnderWay*3/2:
				cancel()
			}
		}
	})
	_, err := Push{Path: "/x", Source: zeros{}}.Run(ctx, open)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if <-ended; got != mostUnderWay*3/2 {
		t.Errorf("%d bytes came", got)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// A copy whose guest goes away after it has begun is lost; one that is refused, or whose file is at fault, is not.
func TestCopyLost(t *testing.T) {
	gone := &metav1.Status{Reason: metav1.StatusReasonConflict, Message: "the guest does not run any more"}
	full := &metav1.Status{Reason: copyfile.ReasonFull, Message: "/x: no space"}
	for name, tc := range map[string]struct {
		begun   bool
		failure *metav1.Status
		lost    bool
	}{
		"gone": {true, gone, true}, "refused": {false, gone, false}, "full": {true, full, false},
	} {
		open := against(t, func(conn *stream.Conn) {
			if tc.begun {
				exec.WriteJSON(conn, copyfile.ChannelOpened, copyfile.Opened{Path: "/x"})
			}
			exec.WriteJSON(conn, copyfile.ChannelResult, copyfile.Result{Failure: tc.failure})
		})
		_, err := Pull{Path: "/x", To: io.Discard}.Run(t.Context(), open)
		if err == nil || errors.Is(err, action.ErrLost) != tc.lost ||
			!strings.Contains(err.Error(), tc.failure.Message) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
