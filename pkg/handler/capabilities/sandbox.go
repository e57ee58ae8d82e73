package capabilities

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxOutput bounds what a probe prints, bytes: the files in base64; maxComplaint what is reported of one that failed.
const (
	maxOutput    = 4 << 20
	maxComplaint = 2 << 10
)

// Sandbox runs libvirtd and QEMU from the launcher's image as uid 107, in namespaces of their own, with the image as
// their read-only root and a few megabytes of memory to write to. They see no network, no process, no file and no
// device of the node but those that QEMU is to be asked about, and end with virt-handler.
type Sandbox struct {
	// Self is the command that calls Enter with the arguments that follow.
	Self []string
	// Root is the mount point of the launcher's image, Dev the node's /dev.
	Root, Dev string
}

// Probe runs one probe and gives the files that libvirt has made.
func (s Sandbox) Probe(ctx context.Context, v Variant) (map[string][]byte, error) {
	// The kernel ends the processes with the thread that made them.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	stdout, stderr := &bounded{limit: maxOutput}, &bounded{limit: maxComplaint, drop: true}
	cmd := s.command(ctx, v)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := cmd.Run(); err != nil {
		switch {
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case stdout.full:
			err = errTooMuch
		}
		return nil, fmt.Errorf("probe QEMU in %s: %w: %s", s.Root, err, strings.TrimSpace(stderr.buffer.String()))
	}
	var files map[string][]byte
	if err := json.Unmarshal(stdout.buffer.Bytes(), &files); err != nil {
		return nil, fmt.Errorf("probe QEMU in %s: read what it printed: %w", s.Root, err)
	}
	return files, nil
}

// command returns the command that runs this program as the first process of new namespaces; the kernel ends the others
// there when it ends.
func (s Sandbox) command(ctx context.Context, v Variant) *exec.Cmd {
	args := append(s.Self[1:len(s.Self):len(s.Self)], "--root="+s.Root, "--dev="+s.Dev)
	if v.KVM {
		args = append(args, "--kvm")
	}
	if v.SEV {
		args = append(args, "--sev")
	}
	cmd := exec.CommandContext(ctx, s.Self[0], args...)
	cmd.Env = []string{} // not virt-handler's
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
			unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP,
		Setsid:    true,
		Pdeathsig: syscall.SIGKILL,
	}
	return cmd
}

var errTooMuch = errors.New("it prints too much")

// bounded keeps the first bytes of what is written. More makes it full, and is an error or is dropped.
type bounded struct {
	buffer bytes.Buffer // not embedded: its ReadFrom knows no bound
	limit  int
	drop   bool
	full   bool
}

func (b *bounded) Write(p []byte) (int, error) {
	room := b.limit - b.buffer.Len()
	if len(p) <= room {
		return b.buffer.Write(p)
	}
	b.full = true
	if !b.drop {
		return 0, errTooMuch
	}
	b.buffer.Write(p[:room])
	return len(p), nil
}
