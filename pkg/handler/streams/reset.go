package streams

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
)

// resets remember, by pod, the end of a guest's serial log when its reset button was pressed last: what is before comes
// from an earlier boot, though the guest may not have written anything since. They last as long as virt-handler.
type resets struct {
	mu sync.Mutex
	at map[types.UID]logEnd
}

// logEnd is a place in a log: its offset, bytes, and what came right before, up to overlap bytes.
type logEnd struct {
	offset int64
	before []byte
}

// reset presses the reset button.
func (s *Server) reset(w http.ResponseWriter, r *http.Request) {
	s.request(w, r, func(ctx context.Context, l launcherpb.LauncherClient) error {
		_, pod, err := s.Launcher(name(r))
		if err != nil {
			return err
		}
		end := s.endOfLog(pod)
		if _, err := l.Reset(ctx, &launcherpb.ResetRequest{}); err != nil {
			return err
		}
		s.resets.note(s.PodsDir, pod, end)
		return nil
	})
}

// endOfLog returns the present end of the serial log; zero for a guest that has none.
func (s *Server) endOfLog(pod types.UID) logEnd {
	run, err := podfs.OpenRun(s.PodsDir, pod)
	if err != nil {
		return logEnd{}
	}
	defer run.Close()
	f, size, err := run.OpenRegular(names.LogSerial)
	if err != nil {
		return logEnd{}
	}
	defer f.Close()
	before := make([]byte, min(size, overlap))
	if _, err := f.ReadAt(before, size-int64(len(before))); err != nil && !errors.Is(err, io.EOF) {
		return logEnd{}
	}
	return logEnd{size, before}
}

// note remembers a reset and forgets those of pods that are gone.
func (s *resets) note(podsDir string, pod types.UID, end logEnd) {
	s.mu.Lock()
	if s.at == nil {
		s.at = map[types.UID]logEnd{}
	}
	s.at[pod] = end
	known := slices.Collect(maps.Keys(s.at))
	s.mu.Unlock()
	// Not under the lock: a look at one pod's files must not hold up requests for others.
	gone := slices.DeleteFunc(known, func(old types.UID) bool {
		run, err := podfs.OpenRun(podsDir, old)
		return old == pod || err == nil && run.Close() == nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, old := range gone {
		delete(s.at, old)
	}
}

func (s *resets) last(pod types.UID) (logEnd, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	end, known := s.at[pod]
	return end, known
}

// tail returns the end of the serial log, up to n bytes; of the present boot alone if sinceReset. In a log that was cut
// since the reset, which takes megabytes, boots cannot be distinguished.
func (s *Server) tail(run *podfs.Run, pod types.UID, n int64, sinceReset bool) ([]byte, error) {
	end, known := s.resets.last(pod)
	if !sinceReset || !known {
		return run.Tail(names.LogSerial, n)
	}
	f, size, err := run.OpenRegular(names.LogSerial)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	from := max(0, size-n)
	if before := make([]byte, len(end.before)); end.offset <= size {
		_, err := f.ReadAt(before, end.offset-int64(len(before)))
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if bytes.Equal(before, end.before) {
			from = max(from, end.offset)
		}
	}
	return io.ReadAll(io.NewSectionReader(f, from, size-from))
}
