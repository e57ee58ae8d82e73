package virtapi

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/stream/quota"
)

// DefaultLimits are the limits of one virt-api. docs/security.md says how much of its memory a stream takes.
var DefaultLimits = quota.Limits{All: 2000, PerUser: 500, PerVM: 300}

// dialTimeout bounds the opening of a stream to virt-handler.
const dialTimeout = 10 * time.Second

// streams joins users' websockets to virt-handler's, and knows which are open.
type streams struct {
	tls      func(node string) *tls.Config
	idleLife time.Duration
	// ctx ends all of them.
	ctx    context.Context
	cancel context.CancelFunc
	// serving ends when the server is to stop, and with it the answers that have no end of their own: the server
	// waits for them, and the streams are drained after that.
	serving context.Context
	stop    context.CancelFunc
	// connections counts them for Prometheus, and quota bounds them.
	connections *connections
	quota       *quota.Quota

	mu       sync.Mutex
	handlers map[handlerKey]*handlerConn
	draining bool
	open     sync.WaitGroup
}

func newStreams(config func(node string) *tls.Config) *streams {
	ctx, cancel := context.WithCancel(context.Background())
	serving, stop := context.WithCancel(ctx)
	return &streams{
		tls: config, idleLife: idleLife, handlers: map[handlerKey]*handlerConn{}, ctx: ctx, cancel: cancel,
		serving: serving, stop: stop,
		connections: newConnections(), quota: quota.New(DefaultLimits),
	}
}

// splice opens target, upgrades the request and copies until both directions have ended. An error is
// one from before the upgrade, and nothing has been answered yet.
func (s *streams) splice(w http.ResponseWriter, r *http.Request, target *url.URL, node, user string) error {
	return s.spliceAs(w, r, target, node, user, func(conn *stream.Conn) io.ReadWriteCloser { return conn })
}

// splicePackets does what splice does, for datagrams, whose messages it keeps apart.
func (s *streams) splicePackets(w http.ResponseWriter, r *http.Request, target *url.URL, node, user string) error {
	return s.spliceAs(w, r, target, node, user,
		func(conn *stream.Conn) io.ReadWriteCloser { return stream.Packets{Conn: conn} })
}

func (s *streams) spliceAs(
	w http.ResponseWriter, r *http.Request, target *url.URL, node, user string,
	as func(*stream.Conn) io.ReadWriteCloser,
) error {
	if !stream.IsUpgrade(r) {
		return badRequest("this is a stream: ask for a websocket")
	}
	release, err := s.take(user, target)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeout(r.Context(), dialTimeout)
	defer cancel()
	header := http.Header{}
	if printable(user) {
		header.Set("X-Remote-User", user)
	}
	// Whether virt-handler takes what the client offers is virt-handler's to say.
	backend, err := s.dial(ctx, target, node, header, stream.Options{Standby: stream.OffersStandby(r)})
	if err != nil {
		if answered(err) {
			return err
		}
		return unreachable(node, err)
	}
	if !s.begin() {
		_ = backend.Close()
		return apierrors.NewServiceUnavailable("this virt-api is shutting down; try again")
	}
	defer s.open.Done()
	client, err := stream.Accept(w, r, stream.Options{Standby: backend.Standby()})
	if err != nil {
		_ = backend.Close() // Accept has answered
		return nil
	}
	defer s.connections.begin(target.Path)()
	s.prepare(handlerKey{node, target.Host})
	// How a stream ends is in the close frame to both sides, and nowhere else.
	_ = stream.Splice(s.ctx, as(client), as(backend))
	return nil
}

// take counts a stream of a user's to a URL of virt-handler's in.
func (s *streams) take(user string, target *url.URL) (release func(), _ error) {
	object, _, _ := stream.ParseHandlerPath(target.Path)
	return s.quota.Take(user, object.String())
}

// begin counts a stream in, unless there are to be no more.
func (s *streams) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.beginLocked()
}

func (s *streams) beginLocked() bool {
	if !s.draining {
		s.open.Add(1)
	}
	return !s.draining
}

// drain waits for the open streams, then ends those that are left.
func (s *streams) drain(limit time.Duration) {
	s.mu.Lock()
	s.draining = true
	s.dropHandlers()
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		s.open.Wait()
		close(done)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
	s.cancel()
	<-done
}

// answered reports whether an error is virt-handler's answer, and not that there was none.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// printable reports whether text can be the value of a header.
func printable(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// passedOn returns virt-handler's error as an error for the user.
func passedOn(code int, body []byte) error {
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Kind == "Status" && status.Code >= 400 {
		return &apierrors.StatusError{ErrStatus: status}
	}
	return apierrors.NewGenericServerResponse(code, http.MethodPut, schema.GroupResource{}, "",
		strings.TrimSpace(string(body)), 0, true)
}
