package page

import (
	"errors"
	"testing"
	"time"
)

// TestReadingExpires: what was read well is wanted again when it is old, not before, and not while it is being read;
// what failed has a pause of its own.
func TestReadingExpires(t *testing.T) {
	t.Parallel()
	const every = 5 * time.Second
	began := time.Unix(1e9, 0)
	var r reading[string]
	wanted := func(after time.Duration) bool {
		at := began.Add(after)
		r.expire(every, at)
		return r.wanted("claims", at)
	}
	if !wanted(0) || wanted(time.Hour) {
		t.Error("it is read twice at once")
	}
	r.done(nil, began)
	if wanted(every - 1) {
		t.Error("it is read again at once")
	}
	if !wanted(every) {
		t.Error("it is not read again")
	}
	r.done(errors.New("refused"), began)
	if wanted(every) || !wanted(again) {
		t.Error("a reading that failed is tried again like one that did not")
	}
}
