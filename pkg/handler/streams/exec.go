package streams

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/stream/exec"
)

// exec serves one program in the guest: it takes the request and all of its input, has the launcher run it, and
// passes on what comes back.
func (s *Server) exec(w http.ResponseWriter, r *http.Request) {
	order[*launcherpb.ExecRequest, exec.Result]{
		ended: "what ran in the guest is ended", channel: exec.ChannelResult,
		read: readExec, do: runProgram, failed: failed,
	}.serve(s, w, r)
}

// readExec reads the request and the standard input, for which it takes room.
func readExec(conn *stream.Conn, room *held) (*launcherpb.ExecRequest, error) {
	var request exec.Request
	if err := readRequest(conn, exec.ChannelRequest, room, 0, &request); err != nil {
		return nil, err
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

// runProgram has the launcher run it, and gives the room of its input free.
func runProgram(ctx context.Context, c *orderer, request *launcherpb.ExecRequest) (exec.Result, error) {
	c.reading.Go(func() {
		defer c.leave()
		// Nothing more is to come but the end.
		_, _ = io.Copy(io.Discard, c.conn)
	})
	program, err := c.launcher.Exec(ctx, request)
	c.room.free() // it has been sent
	if err != nil {
		return failed(c.vmi, err), ctx.Err()
	}
	for {
		message, err := program.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = grpcstatus.Error(codes.DataLoss, "the launcher has not said how it ended")
			}
			return failed(c.vmi, err), ctx.Err()
		}
		switch what := message.What.(type) {
		case *launcherpb.ExecResponse_Output:
			err = exec.WriteAll(c.conn, exec.ChannelStdout, what.Output)
		case *launcherpb.ExecResponse_ErrorOutput:
			err = exec.WriteAll(c.conn, exec.ChannelStderr, what.ErrorOutput)
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

// failed returns the result that says why there is no exit code.
func failed(vmi types.NamespacedName, err error) exec.Result {
	status := statusOf(vmi, err)
	switch grpcstatus.Code(err) {
	case codes.DataLoss, codes.Unavailable: // a launcher that does not answer may have started it
		status.Reason, status.Code = exec.ReasonLost, http.StatusConflict
		status.Message = Words(err)
	case codes.NotFound:
		status.Reason, status.Code = exec.ReasonNoProgram, http.StatusUnprocessableEntity
		status.Message = Words(err)
	case codes.InvalidArgument:
		status = apierrors.NewBadRequest(Words(err)).ErrStatus
	}
	status.TypeMeta = metav1.TypeMeta{}
	return exec.Result{Failure: &status}
}
