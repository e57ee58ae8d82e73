package streams

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/client-go/rest"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/stream/copyfile"
	"github.com/virtkit/virtkit/pkg/stream/exec"
)

// copies is a launcher, and its stream of one copy.
type copies struct {
	launcherpb.LauncherClient
	grpc.ClientStream
	ctx context.Context

	sent chan *launcherpb.CopyFileRequest
	// answers come after the end of what is pushed, then err; none waits for the caller to leave.
	answers []*launcherpb.CopyFileResponse
	err     error
	left    chan struct{}
}

func newCopies(err error, answers ...*launcherpb.CopyFileResponse) *copies {
	return &copies{
		sent: make(chan *launcherpb.CopyFileRequest, 100), answers: answers, err: err, left: make(chan struct{}),
	}
}

func (c *copies) CopyFile(ctx context.Context, _ ...grpc.CallOption,
) (grpc.BidiStreamingClient[launcherpb.CopyFileRequest, launcherpb.CopyFileResponse], error) {
	c.ctx = ctx
	return c, nil
}

func (c *copies) Send(m *launcherpb.CopyFileRequest) error {
	select {
	case c.sent <- m:
		return nil
	case <-c.ctx.Done():
		return io.EOF
	}
}

func (c *copies) CloseSend() error { return nil }

func (c *copies) Recv() (*launcherpb.CopyFileResponse, error) {
	if len(c.answers) > 0 {
		m := c.answers[0]
		c.answers = c.answers[1:]
		return m, nil
	}
	if c.err == nil {
		<-c.ctx.Done()
		close(c.left)
		return nil, c.ctx.Err()
	}
	return nil, c.err
}

func copyResult(bytes uint64) *launcherpb.CopyFileResponse {
	return &launcherpb.CopyFileResponse{
		What: &launcherpb.CopyFileResponse_Result{
			Result: &launcherpb.CopyFileResult{Bytes: bytes, Sha256: "ab", Verified: true},
		},
	}
}

func openCopy(t *testing.T, s *setup) *stream.Conn {
	t.Helper()
	conn, err := stream.Dial(t.Context(), &rest.Config{Host: s.http.URL}, guestPath+"copyfile", url.Values{},
		stream.Options{Linger: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func copySetup(t *testing.T, c *copies) *setup {
	s := newSetup(t)
	s.launcher.LauncherClient = c
	return s
}

// copyEnd reads what comes of a copy.
func copyEnd(t *testing.T, r io.Reader) (data string, opened copyfile.Opened, written int64, result copyfile.Result) {
	t.Helper()
	for {
		channel, payload, err := exec.ReadFrame(r)
		if err != nil {
			t.Fatalf("no result: %v", err)
		}
		var w copyfile.Written
		switch channel {
		case copyfile.ChannelData:
			data += string(payload)
		case copyfile.ChannelOpened:
			err = json.Unmarshal(payload, &opened)
		case copyfile.ChannelWritten:
			err = json.Unmarshal(payload, &w)
			written = w.Bytes
		case copyfile.ChannelResult:
			if err := json.Unmarshal(payload, &result); err != nil {
				t.Fatal(err)
			}
			return data, opened, written, result
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestCopyFilePush(t *testing.T) {
	c := newCopies(io.EOF,
		&launcherpb.CopyFileResponse{
			What: &launcherpb.CopyFileResponse_Opened{Opened: &launcherpb.CopyFileOpened{Path: "/etc/x"}},
		},
		&launcherpb.CopyFileResponse{What: &launcherpb.CopyFileResponse_Written{Written: 7}}, copyResult(7))
	conn := openCopy(t, copySetup(t, c))
	mode := uint32(0o640)
	exec.WriteJSON(conn, copyfile.ChannelRequest,
		copyfile.Request{Direction: copyfile.Push, Path: "/etc", Name: "x", IntoDirectory: true, Mode: &mode})
	start := (<-c.sent).GetStart()
	if start == nil || start.Pull || start.Path != "/etc" || start.Name != "x" || !start.IntoDirectory ||
		start.GetMode() != 0o640 {
		t.Errorf("start %v", start)
	}
	_, opened, written, result := copyEnd(t, conn)
	if opened.Path != "/etc/x" || written != 7 || result.Bytes != 7 || result.SHA256 != "ab" || !result.Verified ||
		result.Failure != nil {
		t.Errorf("%+v, %d, %+v", opened, written, result)
	}
}

// What the client pushes goes on to the launcher, and so does its end, once.
func TestCopyFilePasses(t *testing.T) {
	c := newCopies(nil)
	conn := openCopy(t, copySetup(t, c))
	exec.WriteJSON(conn, copyfile.ChannelRequest, copyfile.Request{Direction: copyfile.Push, Path: "/x"})
	exec.WriteFrame(conn, copyfile.ChannelData, []byte("one"))
	exec.WriteFrame(conn, copyfile.ChannelData, []byte("two"))
	exec.WriteFrame(conn, copyfile.ChannelData, nil)
	if (<-c.sent).GetStart() == nil || string((<-c.sent).GetData()) != "one" || string((<-c.sent).GetData()) != "two" ||
		(<-c.sent).GetEnd() == nil {
		t.Error("not what was sent")
	}
	conn.Close()
	select {
	case <-c.left:
	case <-time.After(30 * time.Second):
		t.Error("the copy goes on")
	}
	if len(c.sent) > 0 {
		t.Errorf("more: %v", <-c.sent)
	}
}

func TestCopyFilePull(t *testing.T) {
	size, mode, big := uint64(1<<20), uint32(0o600), strings.Repeat("x", 1<<20)
	c := newCopies(io.EOF,
		&launcherpb.CopyFileResponse{
			What: &launcherpb.CopyFileResponse_Opened{
				Opened: &launcherpb.CopyFileOpened{Path: "/x", Size: &size, Mode: &mode},
			},
		},
		&launcherpb.CopyFileResponse{What: &launcherpb.CopyFileResponse_Data{Data: []byte(big)}}, copyResult(size))
	conn := openCopy(t, copySetup(t, c))
	exec.WriteJSON(conn, copyfile.ChannelRequest, copyfile.Request{Direction: copyfile.Pull, Path: "/x"})
	data, opened, _, result := copyEnd(t, conn)
	if data != big || *opened.Size != 1<<20 || *opened.Mode != 0o600 || result.Bytes != 1<<20 {
		t.Errorf("%d bytes, %+v, %+v", len(data), opened, result)
	}
	if _, _, err := exec.ReadFrame(conn); !errors.Is(err, io.EOF) {
		t.Errorf("after the result: %v", err)
	}
}

func TestCopyFileFailures(t *testing.T) {
	pull := func(c *stream.Conn) {
		exec.WriteJSON(c, copyfile.ChannelRequest, copyfile.Request{Direction: copyfile.Pull, Path: "/x"})
	}
	push := func(send func(c *stream.Conn)) func(c *stream.Conn) {
		return func(c *stream.Conn) {
			exec.WriteJSON(c, copyfile.ChannelRequest, copyfile.Request{Direction: copyfile.Push, Path: "/x"})
			send(c)
		}
	}
	for name, tc := range map[string]struct {
		send            func(*stream.Conn)
		err             error
		reason, message string
	}{
		"no file":      {pull, grpcstatus.Error(codes.NotFound, "/x: no such file"), "NoSuchFile", "/x: no such file"},
		"denied":       {pull, grpcstatus.Error(codes.PermissionDenied, "/x: denied"), "FileDenied", "/x: denied"},
		"full":         {pull, grpcstatus.Error(codes.OutOfRange, "/x: full"), "GuestFull", "/x: full"},
		"directory":    {pull, grpcstatus.Error(codes.Aborted, "/x: \x1b[2Jdir"), "FileRefused", "/x:  [2Jdir"},
		"damaged":      {pull, grpcstatus.Error(codes.DataLoss, "/x: sum"), "FileRefused", "/x: sum"},
		"no agent":     {pull, grpcstatus.Error(codes.FailedPrecondition, "no agent"), "Conflict", "no agent"},
		"invalid":      {pull, grpcstatus.Error(codes.InvalidArgument, "bad"), "BadRequest", "bad"},
		"old launcher": {pull, grpcstatus.Error(codes.Unimplemented, "unknown method"), "Conflict", "older virtkit"},
		"silence":      {pull, io.EOF, "Conflict", "how the copy ended"},
		"not JSON": {
			func(c *stream.Conn) { exec.WriteFrame(c, copyfile.ChannelRequest, []byte("x")) }, nil, "BadRequest",
			"read the request",
		},
		"not a request": {
			func(c *stream.Conn) { exec.WriteFrame(c, copyfile.ChannelData, nil) }, nil, "BadRequest", "not a request",
		},
		"nonsense": {func(c *stream.Conn) {
			exec.WriteJSON(c, copyfile.ChannelRequest, copyfile.Request{Direction: copyfile.Pull, Path: "x"})
		}, nil, "BadRequest", "no home directory"},
		"huge request": {
			func(c *stream.Conn) { c.Write([]byte("\x00\xff\xff\xff\xff")) }, nil, "BadRequest", "too large",
		},
		"huge frame": {
			push(func(c *stream.Conn) { c.Write([]byte("\x01\xff\xff\xff\xff")) }), nil, "BadRequest", "too large",
		},
		"odd frame": {push(func(c *stream.Conn) { exec.WriteFrame(c, 9, []byte("x")) }), nil, "BadRequest", "not data"},
	} {
		t.Run(name, func(t *testing.T) {
			conn := openCopy(t, copySetup(t, newCopies(tc.err)))
			tc.send(conn)
			_, _, _, result := copyEnd(t, conn)
			if f := result.Failure; f == nil || string(f.Reason) != tc.reason ||
				!strings.Contains(f.Message, tc.message) {
				t.Errorf("%+v", f)
			}
		})
	}
}

// A client that leaves in the middle of a push ends the copy, and gives its room back.
func TestCopyFileLeft(t *testing.T) {
	c := newCopies(nil)
	s := copySetup(t, c)
	conn := openCopy(t, s)
	exec.WriteJSON(conn, copyfile.ChannelRequest, copyfile.Request{Direction: copyfile.Push, Path: "/x"})
	exec.WriteFrame(conn, copyfile.ChannelData, []byte("half"))
	<-c.sent
	<-c.sent
	conn.Close()
	select {
	case <-c.left:
	case <-time.After(30 * time.Second):
		t.Fatal("the copy goes on")
	}
	if len(c.sent) > 0 {
		t.Errorf("the launcher takes half of the file for the whole: %v", <-c.sent)
	}
	s.server.Close()
	if !s.server.room.TryAcquire(maxHeld) {
		t.Error("a client that has left still has its share")
	}
}

// What copies make a node hold is bounded.
func TestCopyFileBounded(t *testing.T) {
	s := copySetup(t, newCopies(io.EOF))
	if !s.server.room.TryAcquire(maxHeld - copyRoom + 1) {
		t.Fatal("something is held already")
	}
	conn := openCopy(t, s)
	exec.WriteJSON(conn, copyfile.ChannelRequest, copyfile.Request{Direction: copyfile.Pull, Path: "/x"})
	if _, _, _, result := copyEnd(t, conn); result.Failure == nil || result.Failure.Code != http.StatusTooManyRequests {
		t.Errorf("%+v", result.Failure)
	}
	s.server.room.Release(maxHeld - copyRoom + 1)
}
