package waits

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

// Variable is the one knob for slow machines: VIRTKIT_PATIENCE=10 in the environment makes virt-local and the tests
// wait ten times as long before they give up. How fast anything is does not change: a fast machine never notices.
const Variable = "VIRTKIT_PATIENCE"

const most = 1000

// Factor returns how many times as long as usual to wait: 1 where the environment says nothing.
func Factor() (int, error) {
	text := os.Getenv(Variable)
	if text == "" {
		return 1, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("invalid %s=%q: a whole number from 1 to %d is possible", Variable, text, most)
	}
	return n, nil
}

// Scaled returns the time to wait where d is enough on a usual machine. What is no Factor counts as 1: a command line
// that cares asks Factor first.
func Scaled(d time.Duration) time.Duration {
	n, err := Factor()
	if err != nil {
		return d
	}
	return time.Duration(n) * d
}
