package streams

import (
	"context"
	"errors"
	"io"
	"net/http"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/stream/copyfile"
	"github.com/virtkit/virtkit/pkg/stream/exec"
)

// copyRoom is the most that one copy holds, bytes: a frame from the client, and a message to or from the launcher.
const copyRoom = 2 * exec.MaxFrame

// copyFile serves one copy of a file to or from the guest: it has the launcher copy, and passes on what each side
// sends.
func (s *Server) copyFile(w http.ResponseWriter, r *http.Request) {
	order[*copyfile.Request, copyfile.Result]{
		ended: "the copy is ended", channel: copyfile.ChannelResult,
		read: readCopy, do: runCopy, failed: copyFailed,
	}.serve(s, w, r)
}

// readCopy reads the request, and takes room for the copy.
func readCopy(conn *stream.Conn, room *held) (*copyfile.Request, error) {
	request := &copyfile.Request{}
	if err := readRequest(conn, copyfile.ChannelRequest, room, copyRoom, request); err != nil {
		return nil, err
	}
	if err := request.Check(); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return request, nil
}

// runCopy has the launcher copy.
func runCopy(ctx context.Context, c *orderer, request *copyfile.Request) (copyfile.Result, error) {
	guest, err := c.launcher.CopyFile(ctx)
	if err == nil {
		err = guest.Send(&launcherpb.CopyFileRequest{What: &launcherpb.CopyFileRequest_Start{
			Start: &launcherpb.CopyFileStart{
				Pull: request.Direction == copyfile.Pull, Path: request.Path, Name: request.Name,
				IntoDirectory: request.IntoDirectory, Mode: request.Mode,
			},
		}})
	}
	// What a send fails with, Recv says better.
	if err != nil && !errors.Is(err, io.EOF) {
		return copyFailed(c.vmi, err), ctx.Err()
	}
	odd := make(chan error, 1)
	c.reading.Go(func() {
		defer c.leave()
		if request.Direction == copyfile.Push {
			if err := passOn(c.conn, guest); err != nil {
				odd <- err
				return
			}
		}
		// Nothing more is to come but the end.
		_, _ = io.Copy(io.Discard, c.conn)
	})
	result, err := answerCopy(c.vmi, guest, c.conn)
	select {
	case err := <-odd:
		if !errors.Is(err, errLeft) {
			return copyFailed(c.vmi, err), nil
		}
		return result, errLeft
	default:
	}
	if err == nil {
		err = ctx.Err()
	}
	return result, err
}

// copySender is the way to the launcher.
type copySender interface {
	Send(m *launcherpb.CopyFileRequest) error
	CloseSend() error
}

// passOn passes on what the client pushes, to its end.
func passOn(client io.Reader, guest copySender) error {
	for {
		channel, payload, err := exec.ReadFrame(client)
		var passed error
		switch {
		case errors.Is(err, exec.ErrTooLarge):
			return apierrors.NewBadRequest("a frame is too large; see docs/guest-agent.md")
		case err != nil:
			return errLeft
		case channel != copyfile.ChannelData:
			return apierrors.NewBadRequest("a frame that is not data; see docs/guest-agent.md")
		case len(payload) == 0:
			end := &launcherpb.CopyFileRequest_End{End: &launcherpb.CopyFileEnd{}}
			if passed = guest.Send(&launcherpb.CopyFileRequest{What: end}); passed == nil {
				passed = guest.CloseSend()
			}
		default:
			passed = guest.Send(&launcherpb.CopyFileRequest{What: &launcherpb.CopyFileRequest_Data{Data: payload}})
		}
		// Why the launcher takes nothing more, its answer says better.
		if ended := passed != nil || len(payload) == 0; ended {
			return nil
		}
	}
}

// answerCopy passes on what the launcher sends, to its result. The error means that the client is gone.
func answerCopy(
	vmi types.NamespacedName, guest interface {
		Recv() (*launcherpb.CopyFileResponse, error)
	}, client io.Writer,
) (copyfile.Result, error) {
	for {
		message, err := guest.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the launcher has not said how the copy ended")
			}
			return copyFailed(vmi, err), nil
		}
		switch what := message.What.(type) {
		case *launcherpb.CopyFileResponse_Opened:
			opened := copyfile.Opened{Path: bounded(what.Opened.Path), Mode: what.Opened.Mode}
			if what.Opened.Size != nil {
				size := int64(min(*what.Opened.Size, 1<<62))
				opened.Size = &size
			}
			err = exec.WriteJSON(client, copyfile.ChannelOpened, opened)
		case *launcherpb.CopyFileResponse_Data:
			err = exec.WriteAll(client, copyfile.ChannelData, what.Data)
		case *launcherpb.CopyFileResponse_Written:
			written := copyfile.Written{Bytes: int64(min(what.Written, 1<<62))}
			err = exec.WriteJSON(client, copyfile.ChannelWritten, written)
		case *launcherpb.CopyFileResponse_Result:
			r := what.Result
			return copyfile.Result{
				Bytes: int64(min(r.Bytes, 1<<62)), SHA256: bounded(r.Sha256), Verified: r.Verified, Changed: r.Changed,
				InPlace: r.InPlace,
			}, nil
		}
		if err != nil {
			return copyfile.Result{}, err
		}
	}
}

// bounded returns a launcher's text of the length that a path may have.
func bounded(text string) string { return text[:min(len(text), copyfile.MaxPath)] }

// copyFailed returns the result that says why nothing was copied.
func copyFailed(vmi types.NamespacedName, err error) copyfile.Result {
	status := statusOf(vmi, err)
	about := func(reason metav1.StatusReason) {
		status.Reason, status.Code, status.Message = reason, http.StatusUnprocessableEntity, Words(err)
	}
	switch grpcstatus.Code(err) {
	case codes.NotFound:
		about(copyfile.ReasonNoFile)
	case codes.PermissionDenied:
		about(copyfile.ReasonDenied)
	case codes.OutOfRange:
		about(copyfile.ReasonFull)
	case codes.Aborted, codes.DataLoss:
		about(copyfile.ReasonRefused)
	case codes.InvalidArgument:
		status = apierrors.NewBadRequest(Words(err)).ErrStatus
	case codes.Unimplemented:
		status = apierrors.NewConflict(resource, vmi.Name, errors.New("the guest was started by an older virtkit, "+
			"whose virt-launcher cannot copy files; migrate or restart the VM")).ErrStatus
	}
	status.TypeMeta = metav1.TypeMeta{}
	return copyfile.Result{Failure: &status}
}
