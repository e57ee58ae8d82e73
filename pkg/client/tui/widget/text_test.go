package widget

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWrap(t *testing.T) {
	for name, c := range map[string]struct {
		text        string
		width, hang int
		want        []string
	}{
		"short":     {"  a b", 20, 0, []string{"  a b"}},
		"long":      {"  one two three four five", 20, 0, []string{"  one two three four", "    five"}},
		"a column":  {"  key    one two three four", 26, 9, []string{"  key    one two three", "         four"}},
		"a flag":    {"  list pods --all-namespaces", 20, 0, []string{"  list pods", "    --all-namespaces"}},
		"no blanks": {"  0123456789abcdef01234567", 20, 0, []string{"  0123456789abcdef01", "    234567"}},
	} {
		if diff := cmp.Diff(c.want, Wrap(c.text, c.width, c.hang)); diff != "" {
			t.Errorf("%s, -want +got\n%s", name, diff)
		}
	}
}
