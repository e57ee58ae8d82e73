package expect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
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
		out: &Transcript{TypeMeta: metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: Kind}, Steps: []Step{}},
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

// since returns the time since the start, in seconds, to the millisecond.
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

// at adds the script's line to an error, unless the script itself asked for the end or it was cancelled.
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
