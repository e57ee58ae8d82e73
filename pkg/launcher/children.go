package launcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
)

// children starts processes and waits for all there are. As PID 1 the launcher inherits every orphan
// of the pod, and one that is not reaped stops libvirt for 40 s while it probes QEMU. So one loop waits
// for any child, and nobody else (not even exec.Cmd.Wait) waits for one.
type children struct {
	mu      sync.Mutex
	waiting map[int]*child
}

// child is one process that we started.
type child struct {
	pid  int
	done chan struct{}
	// status is valid after done; gone is it for those who hold children.mu.
	status syscall.WaitStatus
	gone   bool
	owner  *children
}

func newChildren() *children { return &children{waiting: map[int]*child{}} }

// reap waits for children until ctx ends.
func (c *children) reap(ctx context.Context) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGCHLD)
	defer signal.Stop(signals)
	for {
		c.collect()
		select {
		case <-signals:
		case <-ctx.Done():
			return
		}
	}
}

// collect takes the status of every child that has ended.
func (c *children) collect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if p := c.waiting[pid]; p != nil {
			delete(c.waiting, pid)
			p.status, p.gone = status, true
			close(p.done)
		}
	}
}

// start starts cmd. Its Stdin, Stdout and Stderr must be files or nil.
func (c *children) start(cmd *exec.Cmd) (*child, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	p := &child{pid: cmd.Process.Pid, done: make(chan struct{}), owner: c}
	c.waiting[p.pid] = p
	if err := cmd.Process.Release(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// signal sends sig unless the child has ended, so that it never hits another process of the same number.
func (p *child) signal(sig syscall.Signal) error {
	p.owner.mu.Lock()
	defer p.owner.mu.Unlock()
	if p.gone {
		return nil
	}
	return syscall.Kill(p.pid, sig)
}

// wait waits until the child has ended; when ctx ends first it is killed.
func (p *child) wait(ctx context.Context) error {
	select {
	case <-p.done:
	case <-ctx.Done():
		if err := p.signal(syscall.SIGKILL); err != nil {
			return fmt.Errorf("kill process %d: %w", p.pid, err)
		}
		<-p.done
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case p.status.Signaled():
		return fmt.Errorf("killed by signal %d (%s)", p.status.Signal(), p.status.Signal())
	case p.status.ExitStatus() != 0:
		return fmt.Errorf("exit status %d", p.status.ExitStatus())
	}
	return nil
}

// maxComplaint bounds what is kept of a command's stderr, bytes.
const maxComplaint = 4 << 10

// command runs a program to its end; it is a disk.Run.
func (c *children) command(ctx context.Context, name string, args ...string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("run %s: %w", name, err)
	}
	defer r.Close()
	cmd := exec.Command(name, args...)
	cmd.Stderr = w
	p, err := c.start(cmd)
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	var complaint bytes.Buffer
	read := make(chan error, 1)
	go func() {
		_, err := io.Copy(&complaint, io.LimitReader(r, maxComplaint))
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		read <- err
	}()
	err = p.wait(ctx)
	if readErr := <-read; err == nil && readErr != nil {
		return fmt.Errorf("run %s: %w", name, readErr)
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(complaint.String()))
	}
	return nil
}
