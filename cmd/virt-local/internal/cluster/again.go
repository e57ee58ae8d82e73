package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// steady is how long a control plane must have run to be started again when it fails. On a machine that was too slow
// for one of Kubernetes' own deadlines the second try has less to do. One that fails sooner would fail again, and `up`
// says so at once.
const steady = 20 * time.Second

// again starts this process's program anew, in the process that it is: the pid file stays true, and nobody need
// watch it.
type again struct {
	began time.Time
	now   func() time.Time
	exec  func() error
	out   io.Writer
}

// newAgain returns the again of a control plane's process. Kubernetes ends a process in which something failed without
// asking: that, too, is a reason to start again until ctx is done.
func newAgain(ctx context.Context) *again {
	a := &again{began: time.Now(), now: time.Now, out: os.Stderr, exec: func() error {
		return syscall.Exec("/proc/self/exe", os.Args, os.Environ())
	}}
	reap()
	klog.OsExit = func(code int) {
		a.start(ctx, fmt.Errorf("exit code %d, for the reason above", code))
		os.Exit(code)
	}
	return a
}

// start starts again after err, and does not return then. It returns when it should not: the process was asked to end,
// or has failed at once.
func (a *again) start(ctx context.Context, err error) {
	ran := a.now().Sub(a.began)
	if ctx.Err() != nil || ran < steady {
		return
	}
	fmt.Fprintf(a.out, "%s the control plane has failed after %v; starting it again: %v\n",
		a.now().UTC().Format(time.RFC3339), ran.Round(time.Second), err)
	if err := a.exec(); err != nil {
		fmt.Fprintf(a.out, "start the control plane again: %v\n", err)
	}
}

// reap waits for the children that this process had before it started again: they end with it.
func reap() {
	for {
		_, err := unix.Wait4(-1, nil, 0, nil)
		if err != nil && err != unix.EINTR {
			return // none is left
		}
	}
}
