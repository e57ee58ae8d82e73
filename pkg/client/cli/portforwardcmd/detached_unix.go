//go:build unix

package portforwardcmd

import "syscall"

// detached makes a process that does not end with the terminal.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
