package launcher

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/virtkit/virtkit/pkg/service/files"
)

// maxLogOffsets is the number of offsets that are kept: two hours of a guest that writes all the time.
const maxLogOffsets = 720

// logOffsets record the size of a log over time, so that it can be shown from a time on although its lines have none.
// The file has a line for each: seconds since 1970, and bytes.
type logOffsets struct {
	path string
	list []logOffset
}

type logOffset struct {
	at   time.Time
	size int64
}

// note adds an offset if the log has grown; after a cut the earlier ones move along.
func (l *logOffsets) note(log string, now time.Time, cutBy int64) error {
	info, err := os.Stat(log)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the log: %w", err)
	}
	if cutBy > 0 {
		var kept []logOffset
		for _, old := range l.list {
			if old.size >= cutBy {
				kept = append(kept, logOffset{old.at, old.size - cutBy})
			}
		}
		l.list = kept
	}
	if n := len(l.list); n > 0 && l.list[n-1].size == info.Size() && cutBy == 0 {
		return nil
	}
	l.list = append(l.list, logOffset{now, info.Size()})
	if len(l.list) > maxLogOffsets {
		l.list = l.list[len(l.list)-maxLogOffsets:]
	}
	var text strings.Builder
	for _, o := range l.list {
		fmt.Fprintf(&text, "%d %d\n", o.at.Unix(), o.size)
	}
	if err := files.Replace(l.path, []byte(text.String()), 0o600); err != nil {
		return fmt.Errorf("write the log's offsets: %w", err)
	}
	return nil
}
