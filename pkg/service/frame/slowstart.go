package frame

import (
	"sync"
)

// most bounds the calls that run at once.
const most = 32

// SlowStart calls do for 0 to n-1: one, then two at once, then four, while none fails. After a failure no more are
// begun, and one of the errors is returned; the others mostly say the same. So an exhausted quota, or a webhook that
// refuses, is met once, not once a replica.
func SlowStart(n int, do func(i int) error) error {
	for begun, size := 0, 1; begun < n; size = min(2*size, most) {
		size := min(size, n-begun)
		errs := make([]error, size)
		var group sync.WaitGroup
		for i := range size {
			group.Go(func() { errs[i] = do(begun + i) })
		}
		group.Wait()
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		begun += size
	}
	return nil
}
