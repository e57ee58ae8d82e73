package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"
)

// bounded is a log on the node's disk that the guest makes longer for as long as it likes.
type bounded struct {
	path string
	// Above this size, bytes, it is cut to the last rest bytes.
	above, rest int64
}

// boundedLogs are what the guest wrote to its serial port, and QEMU's complaints, which a guest provokes by
// misusing its devices.
func boundedLogs(serial, qemu string) []bounded {
	return []bounded{
		{path: serial, above: 4 << 20, rest: 1 << 20},
		{path: qemu, above: 1 << 20, rest: 4 * maxQEMULog},
	}
}

// interval is how often the launcher looks at what changes without an event.
const interval = 10 * time.Second

// trimLogs keeps logs small until ctx ends.
func trimLogs(ctx context.Context, logs []bounded, log *slog.Logger) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, l := range logs {
			if err := cut(l.path, l.above, l.rest); err != nil {
				log.Warn("cannot cut a log", "log", l.path, "err", err)
			}
		}
	}
}

// cut shortens a file longer than above to its last rest bytes, in place. QEMU appends to it (O_APPEND,
// which libvirt sets for QEMU's log, too) all the while; what it writes between reading and truncating is lost.
func cut(path string, above, rest int64) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() <= above {
		return err
	}
	b, err := io.ReadAll(io.NewSectionReader(f, info.Size()-rest, rest))
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("truncate the log: %w", err)
	}
	if _, err := f.Write(b); err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	return nil
}
