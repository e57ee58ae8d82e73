package upload

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// sending is one run of an upload.
type sending struct {
	Options
	api API
	// request is what is asked for, again in place of each of the pods that were ended.
	request uploads.Request
	pods    int
	// sum is of the first summed bytes of the image.
	sum    hash.Hash
	summed int64
	// moved is when it last went on, and state what was last known.
	moved time.Time
	state uploads.State
	cause error // why it does not go on
	said  bool  // Waits has been told
}

// aWhile is how long an upload may take to begin before that is worth a word.
const aWhile = 15 * time.Second

// mostPods is how many pods an upload has at most, when one after the other is ended.
const mostPods = 5

// ask asks for the upload, or, once its pod was ended, for another one.
func (s *sending) ask(ctx context.Context) error {
	if err := s.api.Put(ctx, client.Claims, s.Namespace, s.Claim, uploads.Subresource, s.request); err != nil {
		return fmt.Errorf("upload to claim %s/%s: %w", s.Namespace, s.Claim, err)
	}
	s.pods++
	return nil
}

// FailedError is an upload that the cluster's side has ended.
type FailedError struct{ State uploads.State }

func (e *FailedError) Error() string { return e.State.Message }

// run sends until the upload has ended.
func (s *sending) run(ctx context.Context) (uploads.State, error) {
	for {
		state, err := s.api.UploadState(ctx, s.Namespace, s.Claim)
		switch {
		case ctx.Err() != nil:
			return s.state, ctx.Err()
		case err == nil:
			s.note(state)
		case permanent(err):
			return s.state, fmt.Errorf("look at the upload to claim %s/%s: %w", s.Namespace, s.Claim, err)
		default:
			s.cause = err
		}
		switch {
		case err == nil && state.Phase == uploads.Succeeded:
			return state, nil
		case err == nil && state.Interrupted && s.pods < mostPods:
			if err := s.ask(ctx); err != nil {
				if permanent(err) || apierrors.IsConflict(err) {
					return state, err
				}
				s.cause = err
				break
			}
			if s.Again != nil {
				s.Again(strings.TrimSuffix(state.Message, ": repeat the upload"))
			}
		case err == nil && state.Phase.Final():
			return state, fmt.Errorf("upload to claim %s/%s: %w", s.Namespace, s.Claim, &FailedError{state})
		case err == nil && state.Phase == uploads.Receiving && s.ContainerDisk == nil:
			if err := s.send(ctx); err != nil && ctx.Err() == nil {
				if permanent(err) {
					return s.state, fmt.Errorf("upload to claim %s/%s: %w", s.Namespace, s.Claim, err)
				}
				s.cause = err
			}
		case err == nil && state.Phase == uploads.Converting:
			s.moved = time.Now() // which takes as long as it takes, and ends by itself
		}
		if s.Waits != nil && !s.said && s.state.Phase == uploads.Pending && s.state.Message != "" &&
			time.Since(s.moved) > min(aWhile, s.Patience/2) {
			s.said = true
			s.Waits(s.waitsFor(ctx))
		}
		if time.Since(s.moved) > s.Patience {
			return s.state, s.tooLong(ctx)
		}
		select {
		case <-ctx.Done():
			return s.state, ctx.Err()
		case <-time.After(poll):
		}
	}
}

// tooLong returns the error of an upload that has not gone on for too long, with what it waited for.
func (s *sending) tooLong(ctx context.Context) error {
	why := s.waitsFor(ctx)
	if why == "" && s.cause != nil {
		why = s.cause.Error()
	}
	if why == "" {
		why = "its pod does not run yet"
	}
	return fmt.Errorf("upload to claim %s/%s: %w: it has not gone on for %s: %s", s.Namespace, s.Claim,
		action.ErrTimeout, s.Patience, why)
}

// waitsFor returns what an upload waits for, as far as somebody says it.
func (s *sending) waitsFor(ctx context.Context) string {
	if refused := Warning(ctx, s.api, s.Namespace, s.Claim); refused != "" {
		return refused
	}
	return s.state.Message
}

// permanent reports an error that another try does not mend.
func permanent(err error) bool {
	var local *localError
	return errors.As(err, &local) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) ||
		apierrors.IsNotFound(err)
}

// localError is one of reading the image.
type localError struct{ error }

func (e *localError) Unwrap() error { return e.error }

func (s *sending) note(state uploads.State) {
	if state.Received != s.state.Received || state.Phase != s.state.Phase {
		s.moved = time.Now()
	}
	s.state = state
	if s.Show != nil {
		s.Show(state)
	}
}

// send sends over one stream, until the pod has said how the upload ended, or the stream breaks.
func (s *sending) send(ctx context.Context) error {
	conn, err := s.api.Upload(ctx, s.Namespace, s.Claim, s.Session)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	in := bufio.NewReaderSize(conn, uploads.MaxLine)
	reply, err := readReply(in)
	if err != nil {
		return err
	}
	s.note(reply.State)
	if reply.State.Phase != uploads.Receiving {
		return s.follow(in)
	}
	sent := make(chan error, 1)
	go func() {
		err := s.write(conn, reply.State.Received)
		if err != nil {
			_ = conn.Close() // ends who reads
		}
		sent <- err
	}()
	followed := s.follow(in)
	_ = conn.Close() // ends who writes
	err = <-sent
	var local *localError
	if errors.As(err, &local) || followed == nil {
		return err
	}
	return followed
}

// follow reads what the pod says, to its last word.
func (s *sending) follow(in *bufio.Reader) error {
	for !s.state.Phase.Final() {
		reply, err := readReply(in)
		if err != nil {
			return err
		}
		state := reply.State
		if state.Phase.Final() {
			// The claim says so in a moment; then it is true.
			s.moved = time.Now()
			return nil
		}
		s.note(state)
	}
	return nil
}

func readReply(in *bufio.Reader) (uploads.Reply, error) {
	var reply uploads.Reply
	line, err := in.ReadSlice('\n')
	if err != nil {
		return reply, err
	}
	if err := json.Unmarshal(line, &reply); err != nil {
		return reply, fmt.Errorf("what the upload's pod says is no answer: %w", err)
	}
	if state := uploads.ParseState([]byte(uploads.Encode(reply.State))); state != nil {
		reply.State = *state
		return reply, nil
	}
	return reply, errors.New("what the upload's pod says is no state of an upload")
}

// write sends the image from an offset on, and the checksum of all of it.
func (s *sending) write(conn *stream.Conn, offset int64) error {
	buffer := make([]byte, chunk)
	// What another run of the program has sent is read once more, for the checksum.
	for at := min(offset, s.summed); at < s.Image.Size; {
		n, err := s.Image.ReadAt(buffer[:min(chunk, s.Image.Size-at)], at)
		if err != nil && !errors.Is(err, io.EOF) || n == 0 {
			return &localError{fmt.Errorf("read the image: %w", errors.Join(err, io.ErrUnexpectedEOF))}
		}
		if end := at + int64(n); end > s.summed {
			_, _ = s.sum.Write(buffer[s.summed-at : n]) // never fails
			s.summed = end
		}
		if end := at + int64(n); end > offset {
			if _, err := conn.Write(buffer[max(offset-at, 0):n]); err != nil {
				return err
			}
		}
		at += int64(n)
	}
	_, err := io.WriteString(conn, hex.EncodeToString(s.sum.Sum(nil)))
	return err
}
