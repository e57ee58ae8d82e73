// Package boottime reads the clock that runs since the machine was started and also while it sleeps. Every process of a
// machine sees the same, so that one may pass to another when something was; nobody can set it.
package boottime

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the time since the machine was started.
func Now() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(fmt.Sprintf("read CLOCK_BOOTTIME: %v", err)) // Linux has it since 2.6.39
	}
	return time.Duration(now.Nano())
}
