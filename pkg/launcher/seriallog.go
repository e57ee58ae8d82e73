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

// The serial log's size, bytes, above which it is cut, and what is left of it then. A guest can write
// for ever, and the log lies on the node's disk.
const (
	cutAbove = 4 << 20
	cutTo    = 1 << 20
)

// interval is how often the launcher looks at what changes without an event.
const interval = 10 * time.Second

// trimLog keeps the serial log small until ctx ends.
func trimLog(ctx context.Context, path string, log *slog.Logger) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := cut(path, cutAbove, cutTo); err != nil {
			log.Warn("cannot cut the serial log", "err", err)
		}
	}
}

// cut shortens a file longer than above to its last rest bytes, in place. QEMU appends to it (O_APPEND)
// all the while; what it writes between reading and truncating is lost.
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
