package streams

import (
	"fmt"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/stream"
)

// screen is the one VNC session of a guest.
type screen struct{ conn *stream.Conn }

// screens are the VNC sessions of a node, by pod.
type screens struct {
	mu   sync.Mutex
	open map[types.UID]*screen
}

// busy reports whether a guest's screen is in use.
func (v *screens) busy(pod types.UID) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.open[pod] != nil
}

// enter makes a session the guest's one and returns the one before it, if any. With preserve it
// does neither when there is one.
func (v *screens) enter(pod types.UID, s *screen, preserve bool) (before *screen, entered bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before = v.open[pod]
	if before != nil && preserve {
		return before, false
	}
	v.open[pod] = s
	return before, true
}

func (v *screens) leave(pod types.UID, s *screen) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.open[pod] == s {
		delete(v.open, pod)
	}
}

// vnc joins a websocket and the guest's VNC server. A second session takes over from the first, or
// is refused when it asks for the first to be preserved.
func (s *Server) vnc(w http.ResponseWriter, r *http.Request) {
	run, pod, err := s.open(w, r)
	if err != nil {
		return
	}
	defer run.Close()
	preserve := r.URL.Query().Get("preserveSession") == "true"
	inUse := fmt.Sprintf("the VNC session of VirtualMachineInstance %s is in use", name(r))
	if preserve && s.screens.busy(pod) {
		refuse(w, name(r), apierrors.NewServiceUnavailable(inUse))
		return
	}
	s.active.Add(1)
	defer s.active.Done()
	display, err := run.Dial(r.Context(), names.SocketVNC)
	if err != nil {
		refuse(w, name(r), noSocket(err, "screen", "autoattachGraphicsDevice"))
		return
	}
	defer display.Close()
	conn, err := stream.Accept(w, r, stream.Options{})
	if err != nil {
		return // answered
	}
	mine := &screen{conn: conn}
	before, entered := s.screens.enter(pod, mine, preserve)
	if !entered {
		_ = conn.CloseWithReason(stream.CodePolicy, inUse)
		return
	}
	defer s.screens.leave(pod, mine)
	var takeover sync.WaitGroup
	if before != nil {
		takeover.Go(func() {
			_ = before.conn.CloseWithReason(stream.CodePolicy, "the VNC session was taken over by another client"+from(r))
		})
	}
	defer takeover.Wait()
	if err := stream.Splice(s.ctx, conn, display); err != nil {
		s.Log.Debug("vnc ended", "vmi", name(r).String(), "error", err)
	}
}
