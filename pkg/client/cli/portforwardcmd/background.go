package portforwardcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/virtkit/virtkit/pkg/client/action/forward"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

const (
	// sessionVariable passes the session's ID to the process that is to run in the background.
	sessionVariable = "VIRTCTL_PORT_FORWARD_SESSION"
	// startTime bounds the opening of the ports in the background.
	startTime = time.Minute
	// maxSaid is the most of its last words that are shown, bytes.
	maxSaid = 2 << 10
	// maxLog is the most that a session in the background writes to its log, bytes.
	maxLog = 1 << 20
)

func registry(f *cli.Factory) (forward.Registry, error) {
	return forward.NewRegistry(f.Getenv, os.UserHomeDir)
}

// spawn runs this very command line in the background and returns once its ports are open.
func (o *Options) spawn(ctx context.Context) error {
	r, err := registry(o.Factory)
	if err != nil {
		return err
	}
	id := o.Factory.RandomName(5)
	log, err := r.Create(id)
	if err != nil {
		return err
	}
	defer log.Close()
	report, err := start(ctx, id, log)
	if err != nil {
		said, rerr := os.ReadFile(r.Log(id))
		if err := errors.Join(rerr, r.Remove(id)); err != nil {
			return err
		}
		return failure(err, said)
	}
	for _, line := range describe(report) {
		o.say("forwarding %s", line)
	}
	if o.Output.Given() {
		return o.Output.Print(report, o.Factory.IO.Out)
	}
	_, err = fmt.Fprintln(o.Factory.IO.Out, report.Name)
	return err
}

// start starts the process and reads what it says of itself.
func start(ctx context.Context, id string, log *os.File) (*forward.Session, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Args[0] = os.Args[0] // it is what its name says
	cmd.Env = append(os.Environ(), sessionVariable+"="+id)
	cmd.Stderr = log
	cmd.SysProcAttr = detached()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("run in the background: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() }) // has ended by itself
	report := &forward.Session{}
	err = json.NewDecoder(out).Decode(report)
	if stop() && err == nil {
		return report, cmd.Process.Release()
	}
	if werr := cmd.Wait(); werr != nil {
		err = werr
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return nil, err
}

// failure returns why a process in the background has ended: what it printed, with its exit code.
func failure(err error, said []byte) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return fmt.Errorf("run in the background: %w", err)
	}
	var lines []string
	for line := range strings.Lines(string(bytes.TrimSpace(said))) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "error: "); ok {
			lines = append(lines, text)
		}
	}
	if len(lines) == 0 { // it has not ended as it should have
		lines = []string{
			fmt.Sprintf("the process in the background ended with %s: %s", exit, said[:min(len(said), maxSaid)]),
		}
	}
	return &cli.ExitError{Code: exit.ExitCode(), Err: errors.New(strings.Join(lines, "\n"))}
}

// runBackground serves as the process in the background.
func (s *session) runBackground(ctx context.Context) error {
	if err := os.Unsetenv(sessionVariable); err != nil { // it is not for what the kubeconfig runs
		return err
	}
	r, err := registry(s.o.Factory)
	if err != nil {
		return err
	}
	s.report.Log = r.Log(s.id)
	s.o.Factory.IO.ErrOut = &bounded{w: s.o.Factory.IO.ErrOut, left: maxLog}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	answering, quiet := context.WithCancel(context.WithoutCancel(ctx))
	done, ready := make(chan struct{}), make(chan error, 1)
	var control sync.WaitGroup
	control.Go(func() {
		err := r.Serve(answering, s.id, s.state, func() { ready <- nil }, stop, done)
		if err != nil {
			s.o.say("%s", err)
			stop()
			select {
			case ready <- err:
			default:
			}
		}
	})
	if err = <-ready; err == nil {
		err = s.ready()
	}
	if err == nil {
		err = s.serve(ctx)
	} else {
		s.close()
	}
	close(done)
	quiet()
	control.Wait()
	return errors.Join(err, r.Remove(s.id))
}

// ready reports to the process in the foreground that the ports are open, and lets go of it.
func (s *session) ready() error {
	if err := json.NewEncoder(s.o.Factory.IO.Out).Encode(s.state()); err != nil {
		return fmt.Errorf("report that the ports are open: %w", err)
	}
	if closer, ok := s.o.Factory.IO.RawOut().(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

func (s *session) state() *forward.Session {
	report := *s.report
	report.Connections = int(s.open.Load())
	return &report
}

// bounded writes up to left bytes and drops the rest.
type bounded struct {
	mu   sync.Mutex
	w    io.Writer
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(p) > b.left {
		b.left = 0
		return len(p), nil
	}
	b.left -= len(p)
	return b.w.Write(p)
}
