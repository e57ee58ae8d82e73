package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/virtkit/virtkit/pkg/names"
)

// bounded is a log on the node's disk that the guest makes longer for as long as it likes.
type bounded struct {
	path string
	// Above this size, bytes, it is cut to the last rest bytes.
	above, rest int64
	// offsets record its size over time; nil for a log that nobody shows by time.
	offsets *logOffsets
	// said is the launcher's own log, in which its lines are, too; nil for a log that is only here.
	said *passed
}

// boundedLogs returns the guest's serial log, and QEMU's log, which a guest can fill by misusing its devices.
func boundedLogs(serial, qemu string, said *lines) []bounded {
	return []bounded{
		{path: serial, above: 4 << 20, rest: 1 << 20, offsets: &logOffsets{path: serial + names.OffsetsSuffix}},
		{path: qemu, above: 1 << 20, rest: 4 * maxQEMULog, said: &passed{to: said, path: qemu, subcomponent: "qemu"}},
	}
}

// interval is the time between the launcher's looks at what changes without an event.
const interval = 10 * time.Second

// trimLogs keeps logs small until ctx ends.
func trimLogs(ctx context.Context, logs []bounded, log *slog.Logger) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		for _, l := range logs {
			if err := l.tend(time.Now()); err != nil {
				log.Warn("cannot tend a log", "log", l.path, "err", err)
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// tend passes on what is new in the log, and cuts it when it is too long.
func (l *bounded) tend(now time.Time) error {
	if l.said != nil {
		if err := l.said.pass(); err != nil {
			return err
		}
	}
	by, err := cut(l.path, l.above, l.rest)
	if err != nil {
		return err
	}
	if l.said != nil {
		l.said.at = max(0, l.said.at-by)
	}
	if l.offsets == nil {
		return nil
	}
	return l.offsets.note(l.path, now, by)
}

// cut shortens a file longer than above to its last rest bytes, in place. QEMU appends to it (O_APPEND,
// which libvirt sets for QEMU's log, too) all the while; what it writes between reading and truncating is lost. It
// returns how many bytes went.
func cut(path string, above, rest int64) (int64, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("open the log: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() <= above {
		return 0, err
	}
	b, err := io.ReadAll(io.NewSectionReader(f, info.Size()-rest, rest))
	if err != nil {
		return 0, fmt.Errorf("read the log: %w", err)
	}
	if err := f.Truncate(0); err != nil {
		return 0, fmt.Errorf("truncate the log: %w", err)
	}
	if _, err := f.Write(b); err != nil {
		return 0, fmt.Errorf("write the log: %w", err)
	}
	return info.Size() - rest, nil
}
