package streams

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/stream/exec"
)

const (
	// requestWithin is the time in which a client must send its request. Its standard input may take longer.
	requestWithin = 30 * time.Second
	// maxHeld bounds what a node holds for clients at a time, bytes: standard input of programs that are about to run,
	// and logs on their way. A user who may ask for them of one guest cannot use up the memory of a component that all
	// guests of the node need.
	maxHeld = 64 << 20
)

var (
	// errBusy is the error for a client for whom there is no room.
	errBusy = apierrors.NewTooManyRequests("virt-handler holds as much for other clients as it can; try again", 1)
	// errLeft is the end of a client that has not said all.
	errLeft = errors.New("the client has left")
)

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

// orderer is a client that has the launcher of a guest do something, over a websocket of frames.
type orderer struct {
	vmi      types.NamespacedName
	launcher launcherpb.LauncherClient
	conn     *stream.Conn
	// room accounts for what is held for the client.
	room *held
	// leave ends what is done for the client.
	leave context.CancelFunc
	// reading reads from the client. The connection is closed before anybody waits for it.
	reading sync.WaitGroup
}

// order is something that clients have launchers do: run a program, copy a file.
type order[Request, Result any] struct {
	// ended says to the client what the end of virt-handler means for the order.
	ended string
	// channel is the one of the result.
	channel exec.Channel
	// read reads what the client wants. errLeft says that the client is gone.
	read func(conn *stream.Conn, room *held) (Request, error)
	// do has the launcher do it. The error means that the client is gone.
	do func(ctx context.Context, c *orderer, request Request) (Result, error)
	// failed is the result of what was not done.
	failed func(vmi types.NamespacedName, err error) Result
}

// serve serves one client, whose leaving ends what is done for it.
func (o order[Request, Result]) serve(s *Server, w http.ResponseWriter, r *http.Request) {
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
	ctx, cancel := context.WithCancel(s.ctx)
	c := &orderer{vmi: vmi, launcher: launcher, conn: conn, room: &held{of: s.room}, leave: cancel}
	defer c.reading.Wait()
	defer conn.Close()
	defer cancel()
	// The end of the server ends the reading, too.
	defer context.AfterFunc(ctx, func() {
		if s.ctx.Err() != nil {
			_ = conn.CloseWithReason(stream.CodeGoingAway, "virt-handler is restarting; "+o.ended)
		}
	})()
	defer c.room.free()
	request, err := o.read(conn, c.room)
	var result Result
	switch {
	case errors.Is(err, errLeft):
		return
	case err != nil:
		result = o.failed(vmi, err)
	default:
		if result, err = o.do(ctx, c, request); err != nil {
			return // the client has left
		}
	}
	_ = exec.WriteJSON(conn, o.channel, result) // or has left now
}

// readRequest reads the first frame, and takes room for what is to come.
func readRequest(conn *stream.Conn, wanted exec.Channel, room *held, size int, request any) error {
	if err := conn.SetReadDeadline(time.Now().Add(requestWithin)); err != nil {
		return errLeft
	}
	channel, payload, err := exec.ReadFrame(conn)
	switch {
	case errors.Is(err, exec.ErrTooLarge):
		return apierrors.NewBadRequest("the request is too large")
	case err != nil:
		return errLeft
	case channel != wanted:
		return apierrors.NewBadRequest("the first frame is not a request; see docs/guest-agent.md")
	case !room.take(size):
		return errBusy
	}
	if err := json.Unmarshal(payload, request); err != nil {
		return apierrors.NewBadRequest("read the request: " + err.Error())
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return errLeft
	}
	return nil
}
