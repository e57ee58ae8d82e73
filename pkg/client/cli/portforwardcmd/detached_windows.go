package portforwardcmd

import (
	"syscall"

	"golang.org/x/sys/windows"
)

// detached makes a process that does not end with the console.
func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.DETACHED_PROCESS | windows.CREATE_NEW_PROCESS_GROUP}
}
