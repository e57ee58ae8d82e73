package frame

import (
	"errors"
	"sync/atomic"
	"testing"
)

func TestSlowStart(t *testing.T) {
	wrong := errors.New("refused")
	for name, tc := range map[string]struct {
		n, failsAt int // -1 for never
		calls      int64
	}{
		"none":              {0, -1, 0},
		"all":               {100, -1, 100},
		"the first fails":   {100, 0, 1},
		"the third fails":   {100, 2, 3},
		"one of four fails": {100, 4, 7},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int64
			seen := make([]atomic.Bool, tc.n)
			err := SlowStart(tc.n, func(i int) error {
				calls.Add(1)
				if seen[i].Swap(true) {
					t.Errorf("%d twice", i)
				}
				if i == tc.failsAt {
					return wrong
				}
				return nil
			})
			if (tc.failsAt >= 0) != errors.Is(err, wrong) || calls.Load() != tc.calls {
				t.Errorf("%d calls, %v", calls.Load(), err)
			}
		})
	}
}
