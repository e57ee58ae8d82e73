package forward

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/virtkit/virtkit/pkg/client/action"
)

const (
	// answerTime bounds a session's answer.
	answerTime = 5 * time.Second
	// maxAnswer bounds its size, bytes.
	maxAnswer = 1 << 20
	// maxSocketPath is the longest path of a unix socket on any system we run on, bytes.
	maxSocketPath = 103
)

// Registry finds the sessions in the background. Each listens on a unix socket of its own, in a directory that only the
// user may enter, and is asked there for its state and to end. So no process is ever found, or killed, by its number,
// which may be another's by then; and a socket that nobody listens on is the whole trace of a session that was killed.
//
//	DIR/ID.sock   where it listens
//	DIR/ID.log    what it has to say
type Registry struct{ Dir string }

// NewRegistry returns the user's registry: below XDG_RUNTIME_DIR, else XDG_STATE_HOME, else ~/.local/state.
func NewRegistry(getenv func(string) string, home func() (string, error)) (Registry, error) {
	base := getenv("XDG_RUNTIME_DIR")
	if base == "" {
		base = getenv("XDG_STATE_HOME")
	}
	if base == "" {
		dir, err := home()
		if err != nil {
			return Registry{}, fmt.Errorf("find a place for what runs in the background: %w; set XDG_STATE_HOME", err)
		}
		base = filepath.Join(dir, ".local", "state")
	}
	return Registry{filepath.Join(base, "virtkit", "port-forward")}, nil
}

func (r Registry) socket(id string) string { return filepath.Join(r.Dir, id+".sock") }

// Log returns where a session's messages go.
func (r Registry) Log(id string) string { return filepath.Join(r.Dir, id+".log") }

// Create makes the directory, and a session's log.
func (r Registry) Create(id string) (*os.File, error) {
	if err := os.MkdirAll(r.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("keep what runs in the background: %w", err)
	}
	if len(r.socket(id)) > maxSocketPath {
		return nil, fmt.Errorf("%s is too long for the path of a socket; set XDG_RUNTIME_DIR to a shorter directory",
			r.socket(id))
	}
	log, err := os.OpenFile(r.Log(id), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("keep what runs in the background: %w", err)
	}
	return log, nil
}

// Remove removes what is left of a session.
func (r Registry) Remove(id string) error {
	var errs []error
	for _, path := range []string{r.socket(id), r.Log(id)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Serve answers for a session until ctx ends. stop is called when somebody asks for its end; their connection
// stays until done is closed, or the process has ended. The socket is there when Serve has called ready.
func (r Registry) Serve(
	ctx context.Context, id string, state func() *Session, ready func(), stop func(), done <-chan struct{},
) error {
	l, err := net.Listen("unix", r.socket(id))
	if err != nil {
		return fmt.Errorf("listen for port-forward list and stop: %w", err)
	}
	ready()
	return serve(ctx, l, func(ctx context.Context, conn net.Conn) {
		defer conn.Close()
		if conn.SetDeadline(time.Now().Add(answerTime)) != nil {
			return
		}
		request, err := bufio.NewReaderSize(io.LimitReader(conn, 16), 16).ReadString('\n')
		if err != nil || json.NewEncoder(conn).Encode(state()) != nil {
			return // whoever asked has gone
		}
		if request == "stop\n" {
			stop()
			<-done
		}
	})
}

// ask sends a request and returns the answer, after which wait, if not nil, gets the connection.
func (r Registry) ask(ctx context.Context, id, request string, wait func(net.Conn) error) (*Session, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", r.socket(id))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if _, err := io.WriteString(conn, request+"\n"); err != nil {
		return nil, err
	}
	s := &Session{}
	if err := json.NewDecoder(io.LimitReader(conn, maxAnswer)).Decode(s); err != nil {
		return nil, fmt.Errorf("read its answer: %w", err)
	}
	if wait != nil {
		err = wait(conn)
	}
	return s, err
}

// dead reports whether err says that nobody listens on a socket.
func dead(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
}

// List asks all sessions, oldest first, and removes what killed ones have left. The error is about those that do not
// answer; the others are listed all the same.
func (r Registry) List(ctx context.Context) ([]*Session, error) {
	paths, err := filepath.Glob(filepath.Join(r.Dir, "*.sock"))
	if err != nil {
		return nil, err
	}
	sessions, errs := make([]*Session, len(paths)), make([]error, len(paths))
	var asking sync.WaitGroup
	for i, path := range paths {
		asking.Go(func() {
			id := strings.TrimSuffix(filepath.Base(path), ".sock")
			var err error
			sessions[i], err = r.ask(ctx, id, "state", nil)
			switch {
			case dead(err):
				errs[i] = r.Remove(id)
			case err != nil:
				errs[i] = fmt.Errorf("port-forward %s does not answer: %w", id, err)
			}
		})
	}
	asking.Wait()
	sessions = slices.DeleteFunc(sessions, func(s *Session) bool { return s == nil })
	slices.SortStableFunc(sessions, func(a, b *Session) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	return sessions, errors.Join(errs...)
}

// Stop ends a session and returns what it was, once its ports are closed. One that does not run is an
// action.ErrNotFound.
func (r Registry) Stop(ctx context.Context, id string) (*Session, error) {
	if id == "" || id != filepath.Base(id) {
		return nil, fmt.Errorf("port-forward %q %w", id, action.ErrNotFound)
	}
	s, err := r.ask(ctx, id, "stop", func(conn net.Conn) error {
		if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			return fmt.Errorf("wait for its end: %w", err)
		}
		return nil
	})
	switch {
	case dead(err):
		return nil, errors.Join(fmt.Errorf("port-forward %q %w", id, action.ErrNotFound), r.Remove(id))
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, fmt.Errorf("stop port-forward %s: %w", id, err)
	}
	return s, nil
}
