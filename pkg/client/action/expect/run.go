package expect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/report"
)

// Bounds of what a guest can make us keep.
const (
	// maxPending is how much output is kept for the next match, in bytes; what is older is let go.
	maxPending = 256 << 10
	// maxOutput is how much output a step of the transcript keeps.
	maxOutput = 64 << 10
	// maxSteps bounds the transcript: what `on` does in a loop would else have no end.
	maxSteps = 20_000
	// chunkSize is how much is read at once.
	chunkSize = 16 << 10
)

// ExitError is a script's own end with a code other than 0.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return fmt.Sprintf("the script ended with code %d", e.Code) }

// errDone is a script's own end with code 0.
var errDone = errors.New("done")

// Options of a run.
type Options struct {
	// Variables that the script may use.
	Variables map[string]string
	// Timeout is what a wait may take until the script says otherwise; 0 is DefaultTimeout.
	Timeout time.Duration
	// Output gets what the guest writes, Printed the lines that the script prints; nil is nobody.
	Output, Printed io.Writer
	// Now is the clock.
	Now func() time.Time
}

// Run plays the script on an open console and closes it. The transcript is there whatever the error: an *ExitError, an
// action.ErrTimeout for a wait that took too long, ctx's own, or what is wrong with the stream.
func (s *Script) Run(ctx context.Context, conn io.ReadWriteCloser, o Options) (*Transcript, error) {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	r := &run{
		Options: o, conn: conn, variables: map[string]string{}, timeout: o.Timeout, start: o.Now(),
		chunks: make(chan []byte), quit: make(chan struct{}),
		out: &Transcript{TypeMeta: metav1.TypeMeta{APIVersion: report.APIVersion, Kind: Kind}, Steps: []Step{}},
	}
	maps.Copy(r.variables, o.Variables)
	var reading sync.WaitGroup
	reading.Go(r.read)
	err := r.play(ctx, s.statements)
	close(r.quit)
	conn.Close()
	reading.Wait()
	return r.finish(err)
}

// run is a script being played.
type run struct {
	Options
	conn      io.ReadWriteCloser
	variables map[string]string
	timeout   time.Duration
	start     time.Time
	handlers  []statement
	out       *Transcript

	chunks  chan []byte
	quit    chan struct{}
	ended   error // why chunks was closed; io.EOF is the stream's own end
	pending []byte
	dropped bool // whether pending has lost its beginning since the last match
}

func (r *run) read() {
	defer close(r.chunks)
	for {
		buf := make([]byte, chunkSize)
		n, err := r.conn.Read(buf)
		if n > 0 {
			select {
			case r.chunks <- buf[:n]:
			case <-r.quit:
				return
			}
		}
		if err != nil {
			r.ended = err
			return
		}
	}
}

func (r *run) finish(err error) (*Transcript, error) {
	t := r.out
	t.Seconds = r.since()
	var exit *ExitError
	switch {
	case err == nil, errors.Is(err, errDone):
		return t, nil
	case errors.As(err, &exit):
		t.ExitCode = exit.Code
		return t, err
	case errors.Is(err, action.ErrTimeout):
		t.ExitCode = 8
	case errors.Is(err, context.Canceled):
		t.ExitCode = 130
	default:
		t.ExitCode = 1
	}
	t.Error = err.Error()
	return t, err
}

// since is the time since the start, in seconds, to the millisecond.
func (r *run) since() float64 {
	return float64(r.Now().Sub(r.start).Milliseconds()) / 1000
}

func (r *run) play(ctx context.Context, statements []statement) error {
	for i := range statements {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.do(ctx, &statements[i]); err != nil {
			return r.at(&statements[i], err)
		}
	}
	return nil
}

// at says which line an error is of, unless it is the script's own wish.
func (r *run) at(s *statement, err error) error {
	var exit *ExitError
	if errors.Is(err, errDone) || errors.As(err, &exit) || errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("line %d: %w", s.line, err)
}

func (r *run) do(ctx context.Context, s *statement) error {
	step := Step{Line: s.line, Statement: s.text, At: r.since()}
	var err error
	switch s.verb {
	case "timeout":
		r.timeout = s.timeout
		return nil
	case "on":
		r.handlers = append(r.handlers, *s)
		return nil
	case "expect":
		err = r.expect(ctx, s, &step)
	default:
		err = r.act(ctx, s, &step)
	}
	return errors.Join(err, r.note(step))
}

// note adds a step to the transcript.
func (r *run) note(step Step) error {
	if len(r.out.Steps) >= maxSteps {
		return fmt.Errorf("the script has made %d steps; an `on` may be answering itself", maxSteps)
	}
	step.Seconds = r.since() - step.At
	if step.Seconds < 0.001 {
		step.Seconds = 0
	}
	r.out.Steps = append(r.out.Steps, step)
	return nil
}

// act does what needs no waiting.
func (r *run) act(ctx context.Context, s *statement, step *Step) error {
	if s.verb == "exit" {
		if s.code == 0 {
			return errDone
		}
		return &ExitError{s.code}
	}
	text, err := s.argument.expand(r.variables)
	if err != nil {
		return err
	}
	switch s.verb {
	case "set":
		r.variables[s.name] = text
		return nil
	case "print":
		step.Printed = text
		if r.Printed != nil {
			_, err = fmt.Fprintln(r.Printed, text)
		}
		return err
	}
	step.Sent = text
	if s.verb == "send-secret" {
		step.Sent = "***"
	}
	return r.send(ctx, text)
}

// send types text, and goes on to take what the guest writes meanwhile: one that does not read before it is read would
// else stand still. A guest that does not take the text in time is a time-out.
func (r *run) send(ctx context.Context, text string) error {
	if text == "" {
		return nil
	}
	sent := make(chan error, 1)
	var writing sync.WaitGroup
	writing.Go(func() {
		_, err := io.WriteString(r.conn, text)
		sent <- err
	})
	giveUp := func(err error) error {
		r.conn.Close()
		writing.Wait()
		return err
	}
	deadline := time.NewTimer(r.timeout)
	defer deadline.Stop()
	chunks := r.chunks
	for {
		select {
		case err := <-sent:
			if err != nil {
				return fmt.Errorf("send: %w", err)
			}
			return nil
		case <-ctx.Done():
			return giveUp(ctx.Err())
		case <-deadline.C:
			return giveUp(fmt.Errorf("%w: the guest has not taken what was sent in %s", action.ErrTimeout, r.timeout))
		case chunk, open := <-chunks:
			if !open {
				chunks = nil
				continue
			}
			if err := r.take(chunk); err != nil {
				return giveUp(err)
			}
		}
	}
}

// expect waits for the pattern, and does what `on` says about what comes before it.
func (r *run) expect(ctx context.Context, s *statement, step *Step) error {
	wait := s.timeout
	if wait == 0 {
		wait = r.timeout
	}
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for {
		matched, err := r.match(ctx, s, step)
		if matched || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline.C:
			words := last(r.pending)
			r.tell(step, len(r.pending))
			return fmt.Errorf("%w waiting %s for %s; the guest's last words: %q", action.ErrTimeout, wait,
				s.what(), words)
		case chunk, open := <-r.chunks:
			if !open {
				r.tell(step, len(r.pending))
				if s.pattern == nil && over(r.ended) {
					return nil
				}
				if over(r.ended) {
					return fmt.Errorf("the console ended while waiting for %s", s.what())
				}
				return fmt.Errorf("waiting for %s: %w", s.what(), r.ended)
			}
			if err := r.take(chunk); err != nil {
				return err
			}
		}
	}
}

// over is whether a stream ended as it should.
func over(err error) bool {
	return err == nil || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed)
}

func (s *statement) what() string {
	if s.pattern == nil {
		return "the end of the console"
	}
	return "/" + s.pattern.String() + "/"
}

// take adds what the guest wrote.
func (r *run) take(chunk []byte) error {
	if r.Output != nil {
		if _, err := r.Output.Write(chunk); err != nil {
			return fmt.Errorf("write the guest's output: %w", err)
		}
	}
	r.pending = append(r.pending, chunk...)
	if over := len(r.pending) - maxPending; over > 0 {
		r.pending = append(r.pending[:0], r.pending[over:]...)
		r.dropped = true
	}
	return nil
}

// match looks for what the statement or an `on` before it waits for, whichever comes first in the output.
func (r *run) match(ctx context.Context, s *statement, step *Step) (bool, error) {
	for {
		var at []int
		if s.pattern != nil {
			at = s.pattern.FindSubmatchIndex(r.pending)
		}
		first := (*statement)(nil)
		for i := range r.handlers {
			if other := r.handlers[i].pattern.FindSubmatchIndex(r.pending); other != nil &&
				(at == nil || other[0] < at[0]) {
				at, first = other, &r.handlers[i]
			}
		}
		switch {
		case at == nil:
			return false, nil
		case first == nil:
			r.found(s, at, step)
			return true, nil
		}
		own := Step{Line: first.line, Statement: first.text, At: r.since()}
		r.found(first, at, &own)
		if err := errors.Join(r.act(ctx, first.do, &own), r.note(own)); err != nil {
			return false, r.at(first, err)
		}
	}
}

// found sets the variables of a match and takes it, and what is before it, from the output.
func (r *run) found(s *statement, at []int, step *Step) {
	step.Match = printable(r.pending[at[0]:at[1]])
	for i, name := range s.pattern.SubexpNames() {
		if i == 0 || at[2*i] < 0 {
			continue
		}
		value := string(r.pending[at[2*i]:at[2*i+1]])
		if step.Groups == nil {
			step.Groups = map[string]string{}
		}
		for _, key := range []string{strconv.Itoa(i), name} {
			if key != "" {
				r.variables[key] = value
			}
		}
		if name == "" {
			name = strconv.Itoa(i)
		}
		step.Groups[name] = printable([]byte(value))
	}
	r.tell(step, at[1])
}

// tell moves the first n bytes of the output to the transcript.
func (r *run) tell(step *Step, n int) {
	said := r.pending[:n]
	if len(said) > maxOutput {
		said = said[len(said)-maxOutput:]
		step.Truncated = true
	}
	step.Truncated = step.Truncated || r.dropped
	step.Output = printable(said)
	r.pending, r.dropped = append([]byte(nil), r.pending[n:]...), false
}

// printable is output as a valid string.
func printable(b []byte) string { return strings.ToValidUTF8(string(b), "�") }

// last is the end of the output, for an error.
func last(b []byte) string {
	const enough = 200
	if len(b) > enough {
		b = b[len(b)-enough:]
	}
	return printable(b)
}
