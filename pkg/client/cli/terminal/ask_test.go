package terminal

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestAnswer(t *testing.T) {
	for _, test := range []struct {
		typed, want, shown string
		err                error
	}{
		{"yes\r", "yes", "yes", nil},
		{"yes\nmore", "yes", "yes", nil},
		{"nö\x7f\x08yes\r", "yes", "nö\b \b\b \byes", nil},
		{"\x7fab\x15c\r", "c", "ab\b \b\b \bc", nil},
		{"a\x1b[\x04b\r", "a[b", "a[b", nil},
		{"ab\x03", "", "ab", context.Canceled},
		{"\x04", "", "", io.EOF},
		{"ab", "", "ab", io.EOF},
	} {
		var shown bytes.Buffer
		got, err := answer(t.Context(), strings.NewReader(test.typed), &shown)
		if got != test.want || shown.String() != test.shown || !errors.Is(err, test.err) {
			t.Errorf("%q: %q, shown %q, %v", test.typed, got, shown.String(), err)
		}
	}
	long := strings.Repeat("x", 2*maxAnswer)
	if got, err := answer(t.Context(), strings.NewReader(long+"\r"), io.Discard); len(got) != maxAnswer || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
