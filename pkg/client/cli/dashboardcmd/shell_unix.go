//go:build unix

package dashboardcmd

import (
	"os"

	"golang.org/x/sys/unix"
)

// shell reports whether a shell with job control has started us: one of the same session, in another process group.
// Nothing else would have a stopped program go on.
func shell() bool {
	session, err := unix.Getsid(0)
	if err != nil {
		return false
	}
	parent := os.Getppid()
	theirs, err := unix.Getsid(parent)
	if err != nil || theirs != session {
		return false
	}
	group, err := unix.Getpgid(parent)
	return err == nil && group != unix.Getpgrp()
}
