package launcher

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestLogOffsets(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	m := &logOffsets{path: log + ".offsets"}
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	note := func(seconds, size, cutBy int64) string {
		t.Helper()
		if size >= 0 {
			if err := os.WriteFile(log, []byte(strings.Repeat("x", int(size))), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.note(log, at(seconds), cutBy); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(m.path)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return string(text)
	}
	if got := note(1, -1, 0); got != "" {
		t.Errorf("without a log: %q", got)
	}
	note(10, 100, 0)
	note(20, 100, 0) // silent
	if got := note(30, 150, 0); got != "10 100\n30 150\n" {
		t.Errorf("offsets %q", got)
	}
	if got := note(40, 60, 120); got != "30 30\n40 60\n" {
		t.Errorf("after a cut %q", got)
	}
	for i := range int64(maxLogOffsets) {
		note(100+i, 200+i, 0)
	}
	if len(m.list) != maxLogOffsets {
		t.Errorf("%d offsets", len(m.list))
	}
}
