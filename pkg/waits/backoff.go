package waits

import "time"

// maxDoublings keeps a wait of less than two hours from an overflow; it is longer than any by then.
const maxDoublings = 20

// After returns how long to wait after so many failures in a row, at least one: first, doubled by each further one up
// to most.
func After(first, most time.Duration, failures int) time.Duration {
	return min(first<<min(failures-1, maxDoublings), most)
}

// Doubling returns a function that counts its calls as failures: it returns first, and from then on twice what it
// returned before, up to most. It is for one goroutine.
func Doubling(first, most time.Duration) func() time.Duration {
	failures := 0
	return func() time.Duration {
		failures = min(failures+1, maxDoublings+1)
		return After(first, most, failures)
	}
}
