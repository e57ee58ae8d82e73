package page

import (
	"fmt"
	"slices"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/tui/theme"
)

// TestFit: on a screen of any height the field that keys go to and the beginning of the verdict are there, in order,
// and no line too many.
func TestFit(t *testing.T) {
	look := theme.New(theme.Options{NoColour: true})
	lines := func(what string, n int) []string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf("%s %d", what, i))
		}
		return out
	}
	for _, n := range []int{1, 5, 26} {
		for _, rest := range []int{0, 1, 12} {
			fields, verdict, below := lines("field", n), lines("verdict", 3), lines("rest", rest)
			for height := range 50 {
				f := &fitting{}
				for at := range slices.Concat(fields, fields) { // and back to the first
					at %= n
					got := f.fit(look, fields, at, verdict, below, 40, height)
					field, first := slices.Index(got, fields[at]), slices.Index(got, verdict[0])
					if len(got) > height || height > 0 && field < 0 || height > 1 && first < field {
						t.Fatalf("%d fields, %d lines below, height %d, at %d: %q", n, rest, height, at, got)
					}
					if whole := n + 1 + len(verdict) + min(1, rest) + rest; height >= whole && len(got) != whole {
						t.Fatalf("%d lines of %d, although there is room: %q", len(got), whole, got)
					}
				}
			}
		}
	}
	f := &fitting{}
	seen := map[string]bool{}
	for range 20 {
		for _, line := range f.fit(look, lines("field", 5), 0, lines("verdict", 1), lines("rest", 12), 40, 12) {
			seen[line] = true
		}
		f.offset += f.page
	}
	for _, line := range lines("rest", 12) {
		if !seen[line] {
			t.Errorf("%s cannot be read", line)
		}
	}
}
