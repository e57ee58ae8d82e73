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
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/client-go/rest"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/stream/exec"
)

// answers is a launcher's stream of one program.
type answers struct {
	grpc.ClientStream
	ctx      context.Context
	messages []*launcherpb.ExecResponse
	err      error // after them; nil waits for the caller to leave
	left     chan struct{}
}

func (a *answers) Recv() (*launcherpb.ExecResponse, error) {
	if len(a.messages) > 0 {
		m := a.messages[0]
		a.messages = a.messages[1:]
		return m, nil
	}
	if a.err == nil {
		<-a.ctx.Done()
		close(a.left)
		return nil, a.ctx.Err()
	}
	return nil, a.err
}

// program makes the launcher run one.
type execLauncher struct {
	launcherpb.LauncherClient
	info    string
	answers *answers
	request *launcherpb.ExecRequest
	after   time.Duration
	// quiesced is how a guest is frozen that may be paused.
	quiesced launcherpb.Quiesced
}

func (l *execLauncher) AskAgent(context.Context, *launcherpb.AskAgentRequest, ...grpc.CallOption,
) (*launcherpb.AskAgentResponse, error) {
	if l.info == "" {
		return nil, grpcstatus.Error(codes.FailedPrecondition, "the guest agent does not answer")
	}
	return &launcherpb.AskAgentResponse{InfoJson: []byte(l.info)}, nil
}

func (l *execLauncher) Freeze(_ context.Context, r *launcherpb.FreezeRequest, _ ...grpc.CallOption,
) (*launcherpb.FreezeResponse, error) {
	l.after = r.UnfreezeAfter.AsDuration()
	if !r.PauseWithoutAgent {
		return &launcherpb.FreezeResponse{}, nil
	}
	answer := &launcherpb.FreezeResponse{Quiesced: l.quiesced}
	if r.MemoryVolume == "m" {
		answer.Memory = &launcherpb.SavedMemory{Began: timestamppb.New(time.Unix(0, 0)), Size: 7}
	}
	return answer, nil
}

func (l *execLauncher) Exec(ctx context.Context, r *launcherpb.ExecRequest, _ ...grpc.CallOption,
) (grpc.ServerStreamingClient[launcherpb.ExecResponse], error) {
	l.request = r
	l.answers.ctx = ctx
	return l.answers, nil
}

func agentSetup(t *testing.T, l *execLauncher) *setup {
	s := newSetup(t)
	s.launcher.LauncherClient = l
	return s
}

const guestPath = "/v1/namespaces/default/virtualmachineinstances/demo/"

func TestAskAgent(t *testing.T) {
	s := agentSetup(t,
		&execLauncher{info: `{"guestAgentVersion":"1","hostname":"h","unheard":"of","userList":[{"userName":"root"}]}`})
	for path, want := range map[string]string{
		"guestosinfo":    `{"kind":"VirtualMachineInstanceGuestAgentInfo","apiVersion":"kubevirt.io/v1","guestAgentVersion":"1","hostname":"h","os":{},"userList":[{"userName":"root"}],"fsInfo":{"disks":[]}}`,
		"userlist":       `{"kind":"VirtualMachineInstanceGuestOSUserList","apiVersion":"kubevirt.io/v1","metadata":{},"items":[{"userName":"root"}]}`,
		"filesystemlist": `{"kind":"VirtualMachineInstanceFileSystemList","apiVersion":"kubevirt.io/v1","metadata":{},"items":[]}`,
	} {
		response, err := http.Get(s.http.URL + guestPath + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK || string(body) != want {
			t.Errorf("%s: %s %s", path, response.Status, body)
		}
	}
	s = agentSetup(t, &execLauncher{})
	response, err := http.Get(s.http.URL + guestPath + "userlist")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusConflict {
		t.Errorf("no agent: %s", response.Status)
	}
}

func TestFreezeTime(t *testing.T) {
	l := &execLauncher{}
	s := agentSetup(t, l)
	for query, want := range map[string]int{"?after=90s": 202, "?after=-1s": 400, "": 400} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.http.URL+guestPath+"freeze"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %s", query, response.Status)
		}
	}
	if l.after != 90*time.Second {
		t.Errorf("after %v", l.after)
	}
}

func (s *setup) exec(t *testing.T) *stream.Conn {
	t.Helper()
	conn, err := stream.Dial(t.Context(), &rest.Config{Host: s.http.URL}, guestPath+"exec", url.Values{},
		stream.Options{Linger: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// all reads a program's outputs and its result.
func all(t *testing.T, r io.Reader) (out, errOut string, result exec.Result) {
	t.Helper()
	for {
		channel, payload, err := exec.ReadFrame(r)
		if err != nil {
			t.Fatalf("no result: %v", err)
		}
		switch channel {
		case exec.ChannelStdout:
			out += string(payload)
		case exec.ChannelStderr:
			errOut += string(payload)
		case exec.ChannelResult:
			if err := json.Unmarshal(payload, &result); err != nil {
				t.Fatal(err)
			}
			return out, errOut, result
		}
	}
}

func TestExec(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	l := &execLauncher{answers: &answers{messages: []*launcherpb.ExecResponse{
		{What: &launcherpb.ExecResponse_Output{Output: []byte(big)}},
		{What: &launcherpb.ExecResponse_ErrorOutput{ErrorOutput: []byte("err")}},
		{What: &launcherpb.ExecResponse_Result{Result: &launcherpb.ExecResult{ExitCode: 3, Truncated: true}}},
	}}}
	conn := agentSetup(t, l).exec(t)
	exec.WriteJSON(conn, exec.ChannelRequest, exec.Request{Command: []string{"cat", "-"}, Stdin: true})
	exec.WriteAll(conn, exec.ChannelStdin, []byte(big))
	exec.WriteFrame(conn, exec.ChannelStdin, nil)
	out, errOut, result := all(t, conn)
	if out != big || errOut != "err" || result.ExitCode != 3 || !result.Truncated || result.Failure != nil {
		t.Errorf("%d bytes, %q, %+v", len(out), errOut, result)
	}
	if string(l.request.Input) != big || strings.Join(l.request.Command, " ") != "cat -" {
		t.Errorf("%d bytes of input for %q", len(l.request.Input), l.request.Command)
	}
	if _, _, err := exec.ReadFrame(conn); !errors.Is(err, io.EOF) {
		t.Errorf("after the result: %v", err)
	}
}

func TestExecFailures(t *testing.T) {
	request := func(c *stream.Conn) {
		exec.WriteJSON(c, exec.ChannelRequest, exec.Request{Command: []string{"id"}})
	}
	for name, tc := range map[string]struct {
		send    func(*stream.Conn)
		err     error
		reason  string
		message string
	}{
		"no program": {request, grpcstatus.Error(codes.NotFound, "no id"), string(exec.ReasonNoProgram), "no id"},
		"no agent":   {request, grpcstatus.Error(codes.FailedPrecondition, "no agent"), "Conflict", "no agent"},
		"invalid": {
			request, grpcstatus.Error(codes.InvalidArgument, "there is no command"), "BadRequest",
			"there is no command",
		},
		"odd words": {
			request, grpcstatus.Error(codes.FailedPrecondition, "\x1b[2Jno\nagent"), "Conflict", " [2Jno agent",
		},
		"silence": {request, io.EOF, string(exec.ReasonLost), "how it ended"},
		"guest gone": {
			request, grpcstatus.Error(codes.DataLoss, "the guest has ended"), string(exec.ReasonLost), "has ended",
		},
		"launcher gone": {
			request, grpcstatus.Error(codes.Unavailable, "EOF"), string(exec.ReasonLost), "EOF",
		},
		"not JSON": {
			func(c *stream.Conn) { exec.WriteFrame(c, exec.ChannelRequest, []byte("x")) }, nil, "BadRequest",
			"read the request",
		},
		"not a request": {
			func(c *stream.Conn) { exec.WriteFrame(c, exec.ChannelStdin, nil) }, nil, "BadRequest", "not a request",
		},
		"huge frame": {
			func(c *stream.Conn) { c.Write([]byte("\x00\xff\xff\xff\xff")) }, nil, "BadRequest", "too large",
		},
		"much input": {func(c *stream.Conn) {
			exec.WriteJSON(c, exec.ChannelRequest, exec.Request{Command: []string{"id"}, Stdin: true})
			exec.WriteAll(c, exec.ChannelStdin, make([]byte, exec.MaxInput+1))
		}, nil, "RequestEntityTooLarge", "standard input is more than 2 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			conn := agentSetup(t, &execLauncher{answers: &answers{err: tc.err}}).exec(t)
			tc.send(conn)
			_, _, result := all(t, conn)
			if f := result.Failure; f == nil || string(f.Reason) != tc.reason ||
				!strings.Contains(f.Message, tc.message) {
				t.Errorf("%+v", f)
			}
		})
	}
}

// A client that leaves ends the program, at whatever point.
func TestExecLeft(t *testing.T) {
	l := &execLauncher{answers: &answers{left: make(chan struct{})}}
	conn := agentSetup(t, l).exec(t)
	exec.WriteJSON(conn, exec.ChannelRequest, exec.Request{Command: []string{"sleep"}})
	conn.Close()
	select {
	case <-l.answers.left:
	case <-time.After(30 * time.Second):
		t.Error("the program goes on")
	}
}

// What clients make a node hold is bounded, and given back.
func TestExecInputBounded(t *testing.T) {
	s := agentSetup(t, &execLauncher{answers: &answers{err: io.EOF}})
	ask := func() *stream.Conn {
		conn := s.exec(t)
		exec.WriteJSON(conn, exec.ChannelRequest, exec.Request{Command: []string{"id"}, Stdin: true})
		exec.WriteFrame(conn, exec.ChannelStdin, make([]byte, exec.MaxFrame))
		return conn
	}
	for name, full := range map[string]bool{"full": true, "free again": false} {
		t.Run(name, func(t *testing.T) {
			if full {
				if !s.server.room.TryAcquire(maxHeld - 1) {
					t.Fatal("something is held already")
				}
				defer s.server.room.Release(maxHeld - 1)
			}
			conn := ask()
			exec.WriteFrame(conn, exec.ChannelStdin, nil)
			_, _, result := all(t, conn)
			if result.Failure == nil || (result.Failure.Code == http.StatusTooManyRequests) != full {
				t.Errorf("%+v", result.Failure)
			}
		})
	}
	conn := ask()
	conn.Close() // in the middle of it
	s.server.Close()
	if !s.server.room.TryAcquire(maxHeld) {
		t.Error("a client that has left still has its share")
	}
}

func TestFreezeOrPause(t *testing.T) {
	for _, tc := range []struct {
		query    string
		quiesced launcherpb.Quiesced
		code     int
		body     string
	}{
		{"?after=90s&withoutAgent=pause", launcherpb.Quiesced_QUIESCED_PAUSED, 200, `{"quiesced":"Paused"}`},
		{
			"?after=90s&withoutAgent=pause", launcherpb.Quiesced_QUIESCED_ALREADY_PAUSED, 200,
			`{"quiesced":"AlreadyPaused"}`,
		},
		{"?after=90s&withoutAgent=pause", launcherpb.Quiesced_QUIESCED_AGENT, 200, `{"quiesced":"Agent"}`},
		{"?after=90s&withoutAgent=pause", launcherpb.Quiesced_QUIESCED_UNSPECIFIED, 200, `{"quiesced":"Agent"}`},
		{
			"?after=90s&withoutAgent=pause&memory=m", launcherpb.Quiesced_QUIESCED_PAUSED, 200,
			`{"quiesced":"Paused","memory":{"began":"1970-01-01T00:00:00Z","size":7}}`,
		},
		{"?after=90s&withoutAgent=pause&memory=older", launcherpb.Quiesced_QUIESCED_PAUSED, 500, "older version"},
		{"?after=90s&withoutAgent=pause", 99, 500, "does not know"},
		{"?after=0s&withoutAgent=pause", launcherpb.Quiesced_QUIESCED_PAUSED, 400, "have a time"},
		{"?after=90s&withoutAgent=stop", launcherpb.Quiesced_QUIESCED_PAUSED, 400, "it must be pause"},
	} {
		s := agentSetup(t, &execLauncher{quiesced: tc.quiesced})
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.http.URL+guestPath+"freeze"+tc.query, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != tc.code || !strings.Contains(string(body), tc.body) {
			t.Errorf("%s, %s: %d %s %v", tc.query, tc.quiesced, response.StatusCode, body, err)
		}
	}
}
