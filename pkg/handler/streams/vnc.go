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

// screen is the one VNC session of a guest. taken is closed, with by set before, when another one
// takes over.
type screen struct {
	taken chan struct{}
	by    string
}

// screens are the VNC sessions of a node, by pod.
type screens struct {
	mu   sync.Mutex
	open map[types.UID]*screen
}

// enter makes a new session the guest's one, taking over from the one there is, or gives nil if that
// is to be preserved.
func (v *screens) enter(pod types.UID, who string, preserve bool) *screen {
	v.mu.Lock()
	defer v.mu.Unlock()
	if before := v.open[pod]; before != nil {
		if preserve {
			return nil
		}
		before.by = who
		close(before.taken)
	}
	s := &screen{taken: make(chan struct{})}
	v.open[pod] = s
	return s
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
	mine := s.screens.enter(pod, from(r), r.URL.Query().Get("preserveSession") == "true")
	if mine == nil {
		refuse(w, name(r),
			apierrors.NewServiceUnavailable(
				fmt.Sprintf("the VNC session of VirtualMachineInstance %s is in use", name(r)),
			))
		return
	}
	defer s.screens.leave(pod, mine)
	display, err := run.Dial(r.Context(), names.SocketVNC)
	if err != nil {
		refuse(w, name(r), noSocket(err, "screen", "autoattachGraphicsDevice"))
		return
	}
	defer display.Close()
	s.active.Add(1)
	defer s.active.Done()
	conn, err := stream.Accept(w, r, stream.Options{})
	if err != nil {
		return // answered
	}
	ended := make(chan struct{})
	var takeover sync.WaitGroup
	defer takeover.Wait()
	defer close(ended)
	takeover.Go(func() {
		select {
		case <-mine.taken:
			_ = conn.CloseWithReason(stream.CodePolicy, "the VNC session was taken over by another client"+mine.by)
		case <-ended:
		}
	})
	if err := stream.Splice(s.ctx, conn, s.leavingConn(display, pod)); err != nil {
		s.Log.Debug("vnc ended", "vmi", name(r).String(), "err", err)
	}
}
