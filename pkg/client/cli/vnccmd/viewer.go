package vnccmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/virtkit/virtkit/pkg/client/action/vnc"
)

// viewerTime is how long a viewer may take to connect.
const viewerTime = time.Minute

// viewer starts a VNC viewer and serves it until it ends.
func (s *session) viewer(ctx context.Context) error {
	system := vnc.System{OS: runtime.GOOS, Look: exec.LookPath, Glob: filepath.Glob}
	v := vnc.Viewer{Kind: s.Type, Path: s.Path}
	if s.Path == "" {
		var err error
		if v, err = system.Find(s.Type); err != nil {
			return errors.Join(fmt.Errorf("%w; install one (Debian: virt-viewer), or use --web, --terminal or "+
				"--proxy-only", err), s.first.Close())
		}
	}
	l, err := s.listen(ctx, "127.0.0.1", "the viewer")
	if err != nil {
		return err
	}
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(viewerTime)); err != nil {
		return errors.Join(err, l.Close(), s.first.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var output bytes.Buffer
	program := exec.CommandContext(ctx, v.Path, v.Args(l.Addr(), klog.V(4).Enabled())...)
	program.Stdout, program.Stderr = &output, &output
	if err := program.Start(); err != nil {
		if cause := errors.Unwrap(err); cause != nil {
			err = cause // the path is said already
		}
		return errors.Join(fmt.Errorf("start the viewer %s: %w; --vnc-path names another", v.Path, err), l.Close(),
			s.first.Close())
	}
	s.say("Showing %s with %s.\n", s.target.Name, v.Path)
	var ended sync.WaitGroup
	var failed error
	ended.Go(func() {
		failed = program.Wait()
		cancel()
	})
	err = (&vnc.Proxy{Dial: s.dial, Keep: true, Ended: func(error) { cancel() }}).Serve(ctx, l, s.first)
	cancel()
	ended.Wait()
	var exit *exec.ExitError
	switch {
	case err != nil:
		return s.explain(err)
	case errors.As(failed, &exit) && exit.Exited():
		return fmt.Errorf("the viewer %s failed: %w: %s", v.Path, failed, strings.TrimSpace(output.String()))
	}
	return nil
}
