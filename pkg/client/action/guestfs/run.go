package guestfs

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// Program is one that runs in the pod.
type Program struct {
	Command []string
	// Stdin is nil for none. A Read of it that is under way at the end of the program is not waited for.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Resizes, unless nil, gives the program a terminal: it calls its function with the size, and again when that
	// changes, until ctx ends. What it writes goes to Stdout then.
	Resizes func(ctx context.Context, changed func(width, height int))
}

// Kubernetes also says exit code 0 when the connection to the node is cut while a program runs
// (https://github.com/kubernetes/kubectl/issues/1726). So noting runs a program and notes its exit code in a file of
// the pod, and noted prints the note. Their first argument is the file. What bash itself says of a program that a
// signal has ended is not among what the program writes.
const (
	noting = `note=$1; shift; exec 3>&2 2>/dev/null; (exec -- "$@" 2>&3 3>&-); code=$?; exec 2>&3; ` +
		`echo "$code" >"$note"; exit "$code"`
	noted = `echo "$(<"$1")"`
)

// noteTries is how often the note is read that nobody prints, and noteEvery how long after the last time.
const (
	noteTries = 5
	noteEvery = time.Second
)

// script returns the command of a script of bash, with its arguments.
func script(text string, args ...string) []string {
	return append([]string{"/bin/bash", "-c", text, "guestfs"}, args...)
}

// Run runs a program to its end. The error is a *stream.ProcessExitError for an exit code other than 0, which is bash's
// for a program that could not be started, or action.ErrLost when the end is not known.
func (s *Session) Run(ctx context.Context, p Program) error {
	note := "/tmp/.end-" + rand.Text()
	name := p.Command[0]
	p.Command = script(noting, append([]string{note}, p.Command...)...)
	if err := s.run(ctx, name, p); err != nil {
		return err
	}
	var code string
	var err error
	for try := range noteTries {
		if code, err = s.noted(ctx, note); err == nil || ctx.Err() != nil || !s.stands(ctx) || !client.Passing(err) {
			break
		}
		if try < noteTries-1 {
			select {
			case <-ctx.Done():
			case <-s.over:
			case <-time.After(noteEvery):
			}
		}
	}
	switch {
	case err == nil && code == "0":
		return nil
	case err == nil:
		err = stream.ErrNoStatus
	case ctx.Err() != nil, errors.Is(err, action.ErrLost):
		return err
	}
	return s.lost(ctx, err)
}

// noted reads a note, which is empty while the program runs.
func (s *Session) noted(ctx context.Context, note string) (string, error) {
	var code bytes.Buffer
	err := s.run(ctx, "bash", Program{Command: script(noted, note), Stdout: &code, Stderr: io.Discard})
	if err != nil {
		return "", err
	}
	text, whole := strings.CutSuffix(code.String(), "\n")
	if !whole {
		return "", stream.ErrNoStatus
	}
	return text, nil
}

// stands reports whether the pod's first process and, as far as is known, the pod are there.
func (s *Session) stands(ctx context.Context) bool {
	select {
	case <-s.over:
		return false
	default:
		return s.end(ctx) == nil
	}
}

// run runs a program, and believes the exit code that Kubernetes says.
func (s *Session) run(ctx context.Context, name string, p Program) error {
	query := url.Values{"container": {container}, "command": p.Command, "stdout": {"true"}}
	if p.Stdin != nil {
		query.Set("stdin", "true")
	}
	if p.Resizes != nil {
		query.Set("tty", "true")
	} else {
		query.Set("stderr", "true")
	}
	// Nothing answers a ping while the program does not take its input. That the server is there the lease shows.
	process, err := s.api.PodProcess(ctx, s.Pod.Namespace, s.Pod.Name, "exec", query,
		stream.Options{Silence: stream.Stall})
	if err != nil {
		return fmt.Errorf("run %s in pod %s/%s: %w", name, s.Pod.Namespace, s.Pod.Name, err)
	}
	defer process.Close()
	running, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = process.Close() })()
	group.Go(func() {
		select {
		case <-s.over:
			_ = process.Close() // what ran is being ended
		case <-running.Done():
		}
	})
	unread := make(chan error, 1)
	if p.Stdin != nil {
		go func() { // it may be reading
			input := &input{from: p.Stdin}
			_, err := io.Copy(process, input)
			switch {
			case running.Err() != nil: // the program has ended
			case input.err != nil:
				unread <- input.err
				_ = process.Close() // the program must not run with half of its input
			case err == nil:
				_ = process.EndInput() // else the stream has ended
			}
		}()
	}
	if p.Resizes != nil {
		group.Go(func() {
			p.Resizes(running, func(width, height int) { _ = process.Resize(width, height) }) // as above
		})
	}
	err = process.Follow(p.Stdout, p.Stderr)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case cause := <-unread:
		return fmt.Errorf("standard input: %w", cause)
	default:
	}
	return s.judge(ctx, err)
}

// judge makes an error of a program action.ErrLost where that does not tell its end.
func (s *Session) judge(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	select {
	case <-s.over: // the pod's first process has ended all others
		return s.lost(ctx, s.why)
	default:
	}
	var closed *stream.CloseError
	var exit *stream.ProcessExitError
	switch {
	case errors.Is(err, stream.ErrNoStatus), errors.Is(err, stream.ErrNotRun), errors.Is(err, stream.ErrPeerSilent),
		errors.Is(err, stream.ErrPeerStalled), errors.As(err, &closed):
		return s.lost(ctx, err)
	case errors.As(err, &exit) && exit.Code > 128: // a signal, perhaps of the pod's end
		if end := s.end(ctx); end != nil {
			return fmt.Errorf("%w: %w", action.ErrLost, end)
		}
	}
	return err
}

// input remembers why it could not be read.
type input struct {
	from io.Reader
	err  error
}

func (i *input) Read(b []byte) (int, error) {
	n, err := i.from.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		i.err = err
	}
	return n, err
}

// lost returns the error of a program whose end is not known, with what became of the pod.
func (s *Session) lost(ctx context.Context, cause error) error {
	if end := s.end(ctx); end != nil {
		cause = end
	}
	return fmt.Errorf("%w: %v", action.ErrLost, cause) // the cause may be an exit code, which is not the program's
}

// end returns how the pod ended or is about to, nil for one that runs or that cannot be looked at.
func (s *Session) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	switch pod, err := s.look(ctx); {
	case errors.Is(err, errGone):
		return err
	case err != nil:
		return nil
	case life.PodEnded(pod):
		return fmt.Errorf("pod %s/%s has ended: %s", pod.Namespace, pod.Name, endOf(pod))
	case pod.DeletionTimestamp != nil:
		return fmt.Errorf("pod %s/%s is being deleted", pod.Namespace, pod.Name)
	}
	return nil
}
