package streams

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"google.golang.org/grpc"

	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/stream/rfb"
)

const (
	// wakeTime is the time that a guest gets to light its screen again.
	wakeTime = 500 * time.Millisecond
	// wakeTimeout bounds the talk with the VNC server.
	wakeTimeout = 5 * time.Second
)

// screenshot answers with a PNG of the guest's screen, whoever is looking at it now. A guest that has put its screen to
// sleep can be woken first.
func (s *Server) screenshot(w http.ResponseWriter, r *http.Request) {
	launcher, pod, err := s.Launcher(name(r))
	if err != nil {
		refuse(w, name(r), err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	if r.URL.Query().Get("moveCursor") == "true" {
		run, err := podfs.OpenRun(s.PodsDir, pod)
		if err == nil {
			err = errors.Join(wake(ctx, run), run.Close())
		}
		if err != nil {
			refuse(w, name(r), noSocket(err, "screen", "autoattachGraphicsDevice"))
			return
		}
	}
	picture, err := launcher.Screenshot(ctx, &launcherpb.ScreenshotRequest{})
	var piece *launcherpb.ScreenshotPiece
	if err == nil {
		piece, err = picture.Recv() // the first says whether there is one
	}
	if err != nil {
		refuse(w, name(r), err)
		return
	}
	w.Header().Set("Content-Type", "image/png")
	if err := copyPieces(w, piece, picture); err != nil {
		s.Log.Info("screenshot not sent", "vmi", name(r).String(), "err", err)
		panic(http.ErrAbortHandler) // so that the client does not take a half for the whole
	}
}

func copyPieces(
	w io.Writer, piece *launcherpb.ScreenshotPiece, rest grpc.ServerStreamingClient[launcherpb.ScreenshotPiece],
) error {
	for {
		if _, err := w.Write(piece.Png); err != nil {
			return err
		}
		var err error
		if piece, err = rest.Recv(); errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// wake moves the pointer and gives the guest a moment.
func wake(ctx context.Context, run *podfs.Run) error {
	display, err := run.Dial(ctx, names.SocketVNC)
	if err != nil {
		return err
	}
	err = display.SetDeadline(time.Now().Add(wakeTimeout))
	if err == nil {
		err = rfb.Wake(display)
	}
	if err == nil {
		timer := time.NewTimer(wakeTime)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		err = fmt.Errorf("move the pointer: %w", err)
	}
	return errors.Join(err, display.Close())
}
