package podfs

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Terminate sends the process SIGTERM, unless its number has passed to another one.
func (p *Process) Terminate() error {
	handle, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return fmt.Errorf("open process %d: %w", p.PID, err)
	}
	defer unix.Close(handle)
	// It is alive after the handle was made: the handle is on it.
	if !p.Alive() {
		return fmt.Errorf("process %d has ended: %w", p.PID, unix.ESRCH)
	}
	if err := unix.PidfdSendSignal(handle, unix.SIGTERM, nil, 0); err != nil {
		return fmt.Errorf("end process %d: %w", p.PID, err)
	}
	return nil
}
