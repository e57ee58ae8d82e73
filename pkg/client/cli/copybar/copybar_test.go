package copybar

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestBar(t *testing.T) {
	var out strings.Builder
	now := time.Unix(1000, 0)
	bar := New(&out, func() time.Time { return now }, func() int { return 80 })
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
		" 50%    2.0 MiB    1.0 MiB/s      2s left\n", "unknown" + strings.Repeat(" ", 31+1+4+1+7) + "0 B",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}

// TestBarFits draws lines that do not wrap, and names a file as far as there is room.
func TestBarFits(t *testing.T) {
	for width, begins := range map[int]string{
		120: strings.Repeat("n", 39) + "… 100%", 79: strings.Repeat("n", 36) + "… 100%",
		62: strings.Repeat("n", 19) + "… 100%", 61: strings.Repeat("n", 31) + "… 100%",
		39: "nnnnnnnnn… 100%", 30: "nnnnnnn… 100%", 5: "nnnnn",
	} {
		var out strings.Builder
		bar := New(&out, func() time.Time { return time.Unix(1000, 0) }, func() int { return width })
		bar.Show(strings.Repeat("n", 60), 0, 1)
		bar.Show(strings.Repeat("n", 60), 1, 1)
		bar.End()
		for line := range strings.SplitSeq(strings.TrimSuffix(out.String(), "\n"), "\r") {
			if n := utf8.RuneCountInString(line); n > width {
				t.Errorf("%d columns: %q has %d", width, line, n)
			}
		}
		if last := out.String()[strings.LastIndex(out.String(), "\r")+1:]; !strings.HasPrefix(last, begins) {
			t.Errorf("%d columns: %q does not begin with %q", width, last, begins)
		}
	}
}

// TestBarGoesOn draws a copy that was cut off: what was there before is no speed.
func TestBarGoesOn(t *testing.T) {
	var out strings.Builder
	now := time.Unix(1000, 0)
	bar := New(&out, func() time.Time { return now }, func() int { return 80 })
	bar.Show("disk", 0, 10<<20)
	now = now.Add(time.Second)
	bar.Begin("disk", 8<<20, 10<<20)
	now = now.Add(time.Second)
	bar.Show("disk", 9<<20, 10<<20)
	bar.End()
	if got := out.String(); strings.Count(got, "\n") != 1 ||
		!strings.Contains(got, " 90%    9.0 MiB    1.0 MiB/s      1s left") {
		t.Errorf("%q", got)
	}
}
