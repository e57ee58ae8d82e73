package launcher

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// settle are the times after the guest's start when the launcher is done with something for good: with
// the start itself, and with the guest's boot, at the end of which its agent reports for the first time.
var settle = []time.Duration{2 * time.Second, 30 * time.Second}

// slimDown gives memory back once the guest has been started.
func slimDown(ctx context.Context, g *guest, log *slog.Logger) {
	if !g.awaitStart(ctx) {
		return
	}
	started := time.Now()
	for _, after := range settle {
		select {
		case <-time.After(time.Until(started.Add(after))):
		case <-ctx.Done():
			return
		}
		if err := slim(); err != nil {
			log.Warn("cannot give memory back", "err", err)
		}
	}
}

// slim gives back what starting has used up and idling does not need: the heap's free pages, and the
// pages of our own program and its libraries, most of which only ran once. They are clean copies of
// files: the few that are needed again come back from the page cache at the next touch. Every VM of a
// node has a launcher, and this halves it.
func slim() error {
	debug.FreeOSMemory()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("give memory back: %w", err)
	}
	defer f.Close()
	var failed error
	s := bufio.NewScanner(f)
	var area mapping
	for s.Scan() {
		line := s.Text()
		if next, ok := parseMapping(line); ok {
			area = next
			continue
		}
		// The last of an area's lines that matters. A page of a file that was written to (a
		// relocation) is not the file's any more and must stay.
		if line, ok := strings.CutPrefix(line, "Anonymous:"); ok && area.droppable &&
			strings.TrimSpace(line) == "0 kB" {
			failed = errors.Join(failed, area.drop())
		}
	}
	return errors.Join(failed, s.Err())
}

// mapping is one area of the address space.
type mapping struct {
	from, to  uintptr
	droppable bool
}

// parseMapping reads the first line of an area in smaps: "from-to perms offset device inode path". A
// mapping of a file that cannot be written is droppable.
func parseMapping(line string) (mapping, bool) {
	fields := strings.Fields(line)
	if len(fields) < 5 {
		return mapping{}, false
	}
	low, high, ok := strings.Cut(fields[0], "-")
	if !ok {
		return mapping{}, false
	}
	from, err := strconv.ParseUint(low, 16, 64)
	if err != nil {
		return mapping{}, false
	}
	to, err := strconv.ParseUint(high, 16, 64)
	if err != nil {
		return mapping{}, false
	}
	return mapping{
		from:      uintptr(from),
		to:        uintptr(to),
		droppable: len(fields) > 5 && strings.HasPrefix(fields[5], "/") && (fields[1] == "r-xp" || fields[1] == "r--p"),
	}, true
}

func (m mapping) drop() error {
	_, _, errno := unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED)
	if errno != 0 {
		return fmt.Errorf("give back %x-%x: %w", m.from, m.to, errno)
	}
	return nil
}
