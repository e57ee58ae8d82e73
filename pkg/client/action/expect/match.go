package expect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/virtkit/virtkit/pkg/client/action"
)

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
			r.transcribe(step, len(r.pending))
			return fmt.Errorf("%w waiting %s for %s; the guest's last words: %q", action.ErrTimeout, wait,
				s.what(), words)
		case chunk, open := <-r.chunks:
			if !open {
				r.transcribe(step, len(r.pending))
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
	r.transcribe(step, at[1])
}

// over reports whether a stream ended as it should.
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

// transcribe moves the first n bytes of the output to the transcript.
func (r *run) transcribe(step *Step, n int) {
	said := r.pending[:n]
	if len(said) > maxOutput {
		said = said[len(said)-maxOutput:]
		step.Truncated = true
	}
	step.Truncated = step.Truncated || r.dropped
	step.Output = printable(said)
	r.pending, r.dropped = append([]byte(nil), r.pending[n:]...), false
}

// printable returns output as valid UTF-8.
func printable(b []byte) string { return strings.ToValidUTF8(string(b), "�") }

// last returns the end of the output, for an error.
func last(b []byte) string {
	const enough = 200
	if len(b) > enough {
		b = b[len(b)-enough:]
	}
	return printable(b)
}
