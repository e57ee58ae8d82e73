package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/stream/exec"
)

const (
	// requestWithin is how long a client may take to say what to run. Its standard input may take longer.
	requestWithin = 30 * time.Second
	// maxHeld is how much a node holds for clients at a time, bytes: standard input of programs that are about to run,
	// and logs on their way. Whoever may ask for them of one guest cannot use up the memory of a component that all
	// guests of the node need.
	maxHeld = 64 << 20
)

// errBusy is for a client for whom there is no room.
var errBusy = apierrors.NewTooManyRequests("virt-handler holds as much for other clients as it can; try again", 1)

// held is a client's share of maxHeld.
type held struct {
	of   *semaphore.Weighted
	size int64
}

// take reports whether n more bytes may be held.
func (h *held) take(n int) bool {
	if !h.of.TryAcquire(int64(n)) {
		return false
	}
	h.size += int64(n)
	return true
}

func (h *held) free() {
	h.of.Release(h.size)
	h.size = 0
}

// exec serves one program in the guest: it takes the request and all of its input, has the launcher run it, and
// passes on what comes back. The client's leaving ends it.
func (s *Server) exec(w http.ResponseWriter, r *http.Request) {
	vmi := name(r)
	if !stream.IsUpgrade(r) {
		refuse(w, vmi, apierrors.NewBadRequest("this is a stream: ask for a websocket"))
		return
	}
	launcher, _, err := s.Launcher(vmi)
	if err != nil {
		refuse(w, vmi, err)
		return
	}
	s.active.Add(1)
	defer s.active.Done()
	conn, err := stream.Accept(w, r, stream.Options{})
	if err != nil {
		return // Accept has answered
	}
	var reading sync.WaitGroup
	defer reading.Wait()
	defer conn.Close()
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	// The end of the server ends the reading, too.
	defer context.AfterFunc(ctx, func() {
		if s.ctx.Err() != nil {
			_ = conn.CloseWithReason(stream.CodeGoingAway, "virt-handler is restarting; what ran in the guest is ended")
		}
	})()
	input := &held{of: s.room}
	defer input.free()
	request, err := readExec(conn, input)
	var result exec.Result
	switch {
	case errors.Is(err, errLeft):
		return
	case err != nil:
		result = failed(vmi, err)
	default:
		reading.Go(func() {
			defer cancel()
			// Nothing more is to come but the end.
			_, _ = io.Copy(io.Discard, conn)
		})
		if result, err = s.run(ctx, vmi, launcher, request, input, conn); err != nil {
			return // the client has left
		}
	}
	_ = exec.WriteJSON(conn, exec.ChannelResult, result) // or has left now
}

// errLeft is the end of a client that has not said all.
var errLeft = errors.New("the client has left")

// readExec reads the request and the standard input, for which it takes room.
func readExec(conn *stream.Conn, room *held) (*launcherpb.ExecRequest, error) {
	if err := conn.SetReadDeadline(time.Now().Add(requestWithin)); err != nil {
		return nil, errLeft
	}
	channel, payload, err := exec.ReadFrame(conn)
	switch {
	case errors.Is(err, exec.ErrTooLarge):
		return nil, apierrors.NewBadRequest("the request is too large")
	case err != nil:
		return nil, errLeft
	case channel != exec.ChannelRequest:
		return nil, apierrors.NewBadRequest("the first frame is not a request; see docs/guest-agent.md")
	}
	var request exec.Request
	if err := json.Unmarshal(payload, &request); err != nil {
		return nil, apierrors.NewBadRequest("read the request: " + err.Error())
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return nil, errLeft
	}
	out := &launcherpb.ExecRequest{Command: request.Command}
	for request.Stdin {
		channel, payload, err := exec.ReadFrame(conn)
		switch {
		case errors.Is(err, exec.ErrTooLarge) || err == nil && len(out.Input)+len(payload) > exec.MaxInput:
			return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
				"standard input is more than %d MiB, the most that the guest agent takes; copy the data as a file "+
					"instead", exec.MaxInput>>20))
		case err != nil:
			return nil, errLeft
		case channel != exec.ChannelStdin:
			return nil, apierrors.NewBadRequest("a frame that is not standard input; see docs/guest-agent.md")
		case len(payload) == 0:
			request.Stdin = false
		case !room.take(len(payload)):
			return nil, errBusy
		}
		out.Input = append(out.Input, payload...)
	}
	return out, nil
}

// run has the launcher run it, and gives the room of its input free. The error means that the client is gone.
func (s *Server) run(
	ctx context.Context, vmi types.NamespacedName, launcher launcherpb.LauncherClient, request *launcherpb.ExecRequest,
	input *held, client io.Writer,
) (exec.Result, error) {
	program, err := launcher.Exec(ctx, request)
	input.free() // it has been sent
	if err != nil {
		return failed(vmi, err), ctx.Err()
	}
	for {
		message, err := program.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the launcher has not said how it ended")
			}
			return failed(vmi, err), ctx.Err()
		}
		switch what := message.What.(type) {
		case *launcherpb.ExecResponse_Output:
			err = exec.WriteAll(client, exec.ChannelStdout, what.Output)
		case *launcherpb.ExecResponse_ErrorOutput:
			err = exec.WriteAll(client, exec.ChannelStderr, what.ErrorOutput)
		case *launcherpb.ExecResponse_Result:
			return exec.Result{
				ExitCode: int(what.Result.ExitCode), Signal: int(what.Result.Signal), Truncated: what.Result.Truncated,
			}, nil
		}
		if err != nil {
			return exec.Result{}, err
		}
	}
}

// failed says why there is no exit code.
func failed(vmi types.NamespacedName, err error) exec.Result {
	status := statusOf(vmi, err)
	switch grpcstatus.Code(err) {
	case codes.NotFound:
		status.Reason, status.Code = exec.ReasonNoProgram, http.StatusUnprocessableEntity
		status.Message = Words(err)
	case codes.InvalidArgument:
		status = apierrors.NewBadRequest(Words(err)).ErrStatus
	}
	status.TypeMeta = metav1.TypeMeta{}
	return exec.Result{Failure: &status}
}
