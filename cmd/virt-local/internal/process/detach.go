package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// maxLog is the size in bytes from which a log is set aside at the next start.
const maxLog = 64 << 20

// Detached describes a process that outlives us: in a session of its own, with stdin from
// /dev/null and everything it says in a log file.
type Detached struct {
	// Args follow the program's name; the program is this one. Find looks for them.
	Args []string
	Log  string
	// PIDFile is written as soon as the process runs.
	PIDFile string
	// Cloneflags are the namespaces to make for it.
	Cloneflags uintptr
	// Files are its file descriptors from 3 on.
	Files []*os.File
}

// Start starts the process and returns once it is in the pid file.
func (d Detached) Start() (ID, error) {
	log, err := OpenLog(d.Log)
	if err != nil {
		return ID{}, err
	}
	defer log.Close()
	cmd := exec.Command("/proc/self/exe", d.Args...)
	cmd.Args[0] = "virt-local"
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = d.Files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: d.Cloneflags}
	if err := cmd.Start(); err != nil {
		return ID{}, fmt.Errorf("start virt-local %s: %w", d.Args[0], err)
	}
	id, err := Identify(cmd.Process.Pid)
	if err == nil {
		err = id.WriteFile(d.PIDFile)
	}
	if err != nil {
		return ID{}, fmt.Errorf("start virt-local %s: %w", d.Args[0], joinKill(err, cmd))
	}
	// Reap it should it end while we still run; afterwards that is its new parent's task.
	go cmd.Wait() //nolint:errcheck // how it ended is in its log
	return id, nil
}

func joinKill(err error, cmd *exec.Cmd) error {
	if kill := cmd.Process.Kill(); kill != nil {
		return fmt.Errorf("%w (and killing it: %w)", err, kill)
	}
	return err
}

// OpenLog opens a log for appending, setting a very long one aside as <path>.1.
func OpenLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	if st, err := os.Stat(path); err == nil && st.Size() > maxLog {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, fmt.Errorf("set aside log: %w", err)
		}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return f, nil
}
