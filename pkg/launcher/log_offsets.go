package launcher

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// maxMarks is how many marks are kept: two hours of a guest that talks all the time.
const maxMarks = 720

// marks remember how long a log was when, so that it can be shown from a time on although its lines have none. The file
// has a line for each: seconds since 1970, and bytes.
type marks struct {
	path string
	list []mark
}

type mark struct {
	at   time.Time
	size int64
}

// note adds a mark if the log has grown; after a cut the earlier ones move along.
func (m *marks) note(log string, now time.Time, cutBy int64) error {
	info, err := os.Stat(log)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the log: %w", err)
	}
	if cutBy > 0 {
		var kept []mark
		for _, old := range m.list {
			if old.size >= cutBy {
				kept = append(kept, mark{old.at, old.size - cutBy})
			}
		}
		m.list = kept
	}
	if n := len(m.list); n > 0 && m.list[n-1].size == info.Size() && cutBy == 0 {
		return nil
	}
	m.list = append(m.list, mark{now, info.Size()})
	if len(m.list) > maxMarks {
		m.list = m.list[len(m.list)-maxMarks:]
	}
	var text strings.Builder
	for _, mark := range m.list {
		fmt.Fprintf(&text, "%d %d\n", mark.at.Unix(), mark.size)
	}
	temp := m.path + ".new"
	if err := os.WriteFile(temp, []byte(text.String()), 0o600); err != nil {
		return fmt.Errorf("write the log's marks: %w", err)
	}
	if err := os.Rename(temp, m.path); err != nil {
		return fmt.Errorf("write the log's marks: %w", err)
	}
	return nil
}
