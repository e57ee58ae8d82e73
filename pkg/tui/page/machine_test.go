package page

import (
	"errors"
	"testing"
	"time"
)

func TestReading(t *testing.T) {
	at := time.Unix(1000, 0)
	var r reading[string]
	for i, c := range []struct {
		of     string
		after  time.Duration
		wanted bool
		err    error
	}{
		{"one", 0, true, nil},
		{"one", time.Hour, false, nil},
		{"two", 0, true, errors.New("no")},
		{"two", again / 2, false, nil},
		{"three", 0, true, errors.New("no")},
		{"three", again, true, nil},
		{"three", again, false, nil},
	} {
		at = at.Add(c.after)
		if got := r.wanted(c.of, at); got != c.wanted {
			t.Errorf("%d: %s is wanted: %t", i, c.of, got)
		}
		if !c.wanted {
			continue
		}
		if r.wanted("other", at) {
			t.Errorf("%d: two readings at once", i)
		}
		r.done(c.err, at)
	}
}
