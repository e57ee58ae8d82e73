package cli

import "testing"

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"list", "list", 0},
		{"lsit", "list", 1},
		{"lst", "list", 1},
		{"info", "undo", 2},
		{"set", "ssh", 2},
		{"", "vm", 2},
	} {
		if got := Distance(c.a, c.b); got != c.want {
			t.Errorf("from %q to %q: %d, not %d", c.a, c.b, got, c.want)
		}
	}
}
