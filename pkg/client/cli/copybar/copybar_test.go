package copybar

import (
	"strings"
	"testing"
	"time"
)

func TestBar(t *testing.T) {
	var out strings.Builder
	now := time.Unix(1000, 0)
	bar := New(&out, func() time.Time { return now })
	bar.Show("a\x1b[2Jname", 0, 4<<20)
	now = now.Add(2 * time.Second)
	bar.Show("a\x1b[2Jname", 2<<20, 4<<20)
	bar.Show("unknown", 0, -1)
	bar.End()
	bar.End()
	got := out.String()
	if strings.Contains(got, "\x1b") || strings.Count(got, "\n") != 2 {
		t.Errorf("%q", got)
	}
	for _, want := range []string{
		" 50%    2.0 MiB    1.0 MiB/s\n", "unknown" + strings.Repeat(" ", 33+1+4+1+7) + "0 B",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}
