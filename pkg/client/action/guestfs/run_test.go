package guestfs_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/guestfs"
	"github.com/virtkit/virtkit/pkg/client/action/guestfs/guestfstest"
	"github.com/virtkit/virtkit/pkg/stream"
)

// A terminal's size goes to the program, and its one output is standard output.
func TestSessionAtATerminal(t *testing.T) {
	s := guestfstest.New(t, corev1.PersistentVolumeFilesystem)
	s.Run = func(process stream.Packets, _ []string, query url.Values) int {
		if query.Get("tty") != "true" || query.Get("stderr") != "" {
			t.Errorf("%v", query)
		}
		buffer := make([]byte, stream.BufferSize)
		n, err := process.Read(buffer)
		if got := string(buffer[:n]); err != nil || got != "\x04"+`{"Width":120,"Height":40}` {
			t.Errorf("%q, %v", got, err)
		}
		return 0
	}
	session, err := open(t, t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	err = session.Run(t.Context(), guestfs.Program{
		Command: []string{"bash"}, Stdout: io.Discard, Stderr: io.Discard,
		Resizes: func(ctx context.Context, changed func(width, height int)) {
			changed(120, 40)
			<-ctx.Done()
		},
	})
	if err := errors.Join(err, session.Close(t.Context())); err != nil {
		t.Error(err)
	}
}

// A program whose end nobody knows is a lost one, also when the pod was taken away; one that is interrupted is not.
func TestSessionIsLost(t *testing.T) {
	running := corev1.PodStatus{Phase: corev1.PodRunning}
	evicted := corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "low on memory"}
	for name, tc := range map[string]struct {
		status corev1.PodStatus
		end    int
		want   string
	}{
		"the stream is cut":       {running, guestfstest.Cut, "the stream ended before"},
		"only Kubernetes says 0":  {running, guestfstest.Doubtful, "the stream ended before"},
		"the pod has ended":       {evicted, guestfstest.Cut, "has ended: Evicted: low on memory"},
		"it was hung up for that": {evicted, 129, "has ended: Evicted: low on memory"},
	} {
		s := guestfstest.New(t, corev1.PersistentVolumeFilesystem)
		session, err := open(t, t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		s.Run = func(stream.Packets, []string, url.Values) int {
			s.Made().Status = tc.status
			return tc.end
		}
		err = session.Run(t.Context(),
			guestfs.Program{Command: []string{"true"}, Stdout: io.Discard, Stderr: io.Discard})
		if !errors.Is(err, action.ErrLost) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
		if err := session.Close(t.Context()); err != nil || s.Made() != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The note of a program's end is read until it is: whatever keeps it from being read may pass.
func TestSessionReadsTheNoteAgain(t *testing.T) {
	t.Parallel()
	s := guestfstest.New(t, corev1.PersistentVolumeFilesystem)
	session, err := open(t, t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	silent := func(w http.ResponseWriter, r *http.Request) { // what the program printed is lost
		conn, err := stream.Accept(w, r, stream.Options{Subprotocol: stream.PodProcessProtocol})
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		if _, err := (stream.Packets{Conn: conn}).Write([]byte("\x03" + `{"status":"Success"}`)); err != nil {
			t.Error(err)
		}
	}
	answers := []http.HandlerFunc{
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) },
		silent,
	}
	s.Unread = func(w http.ResponseWriter, r *http.Request) bool {
		if len(answers) == 0 {
			return false
		}
		answers[0](w, r)
		answers = answers[1:]
		return true
	}
	err = session.Run(t.Context(), guestfs.Program{Command: []string{"true"}, Stdout: io.Discard, Stderr: io.Discard})
	if err := errors.Join(err, session.Close(t.Context())); err != nil || len(answers) > 0 {
		t.Errorf("%v; %d answers are left", err, len(answers))
	}
}

// A signal that is no sign of the pod's end is the program's own.
func TestSessionProgramIsKilled(t *testing.T) {
	s := guestfstest.New(t, corev1.PersistentVolumeFilesystem)
	s.Run = func(stream.Packets, []string, url.Values) int { return 137 }
	session, err := open(t, t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	err = session.Run(t.Context(), guestfs.Program{Command: []string{"x"}, Stdout: io.Discard, Stderr: io.Discard})
	var exit *stream.ProcessExitError
	if !errors.As(err, &exit) || exit.Code != 137 {
		t.Error(err)
	}
	if err := session.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// What runs while the lease ends is lost: the pod's first process ends it.
func TestSessionLosesItsLease(t *testing.T) {
	s := guestfstest.New(t, corev1.PersistentVolumeFilesystem)
	s.Run = func(process stream.Packets, _ []string, _ url.Values) int {
		s.EndLease()
		_, _ = process.Read(make([]byte, 10)) // until the client has gone
		return 1
	}
	session, err := open(t, t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	err = session.Run(t.Context(), guestfs.Program{Command: []string{"x"}, Stdout: io.Discard, Stderr: io.Discard})
	if !errors.Is(err, action.ErrLost) {
		t.Error(err)
	}
	if err := session.Close(t.Context()); err != nil || s.Made() != nil {
		t.Error(err)
	}
}

// impatient is a client whose programs may not be silent for long, unless their options say for how long.
type impatient struct{ *client.Client }

func (c impatient) PodProcess(
	ctx context.Context, namespace, pod, way string, query url.Values, opts stream.Options,
) (stream.PodProcess, error) {
	if opts.Silence == 0 && way == "exec" {
		opts.Silence = time.Second
	}
	return c.Client.PodProcess(ctx, namespace, pod, way, query, opts)
}

// A program may take its time to read its input, while which nothing answers.
func TestSessionInputIsTakenLate(t *testing.T) {
	t.Parallel()
	s := guestfstest.New(t, corev1.PersistentVolumeFilesystem)
	s.Run = func(process stream.Packets, _ []string, _ url.Values) int {
		time.Sleep(2 * time.Second)
		for buffer := make([]byte, stream.BufferSize); ; {
			if n, err := process.Read(buffer); err != nil || n > 0 && buffer[0] == 255 {
				return 0
			}
		}
	}
	c := impatient{s.Client()}
	claim, err := guestfs.Claim(t.Context(), c, guestfstest.Namespace, guestfstest.Claim)
	if err != nil {
		t.Fatal(err)
	}
	session, err := guestfs.Open(t.Context(), c, guestfs.Plan{Claim: claim}, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = session.Run(t.Context(), guestfs.Program{
		Command: []string{"tar-in"}, Stdin: strings.NewReader("x"), Stdout: io.Discard, Stderr: io.Discard,
	})
	if err := errors.Join(err, session.Close(t.Context())); err != nil {
		t.Error(err)
	}
}

// A program does not run with half of its input.
func TestSessionInputCannotBeRead(t *testing.T) {
	s := guestfstest.New(t, corev1.PersistentVolumeFilesystem)
	s.Run = func(process stream.Packets, _ []string, _ url.Values) int {
		for buffer := make([]byte, stream.BufferSize); ; {
			n, err := process.Read(buffer)
			switch {
			case err != nil: // the client has gone
				return guestfstest.Cut
			case n > 0 && buffer[0] == 255:
				return 0
			}
		}
	}
	session, err := open(t, t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	broken := errors.New("input/output error")
	err = session.Run(ctx, guestfs.Program{
		Command: []string{"guestfish"}, Stdout: io.Discard, Stderr: io.Discard,
		Stdin: io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)),
	})
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "standard input") {
		t.Error(err)
	}
	if err := session.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSessionIsInterrupted(t *testing.T) {
	s := guestfstest.New(t, corev1.PersistentVolumeFilesystem)
	ctx, cancel := context.WithCancel(t.Context())
	s.Run = func(process stream.Packets, _ []string, _ url.Values) int {
		cancel()
		_, _ = process.Read(make([]byte, 10)) // until the client has gone
		return guestfstest.Cut
	}
	session, err := open(t, ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	err = session.Run(ctx, guestfs.Program{Command: []string{"sleep"}, Stdout: io.Discard, Stderr: io.Discard})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := session.Close(ctx); err != nil || s.Made() != nil {
		t.Errorf("%v, pod %v", err, s.Made())
	}
}
