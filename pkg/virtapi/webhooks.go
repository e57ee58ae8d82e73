package virtapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/virtkit/virtkit/pkg/stream"
)

const (
	// bodyTime bounds how long the body of a webhook call may take. The API server gives the whole call 10 s.
	bodyTime = 5 * time.Second
	// reviewTime bounds the remainder of a call.
	reviewTime = 12 * time.Second
)

// webhooks answers the API server's webhook calls. It stands in front of the API server machinery, which would count
// calls whose body never ends among the requests that it serves at a time: with a few hundred of them, from anybody, no
// VM would be admitted any more. Here a call counts once its body has been read.
type webhooks struct {
	handlers map[string]http.Handler // by path
	callers  *callers                // nil: anybody may call
	bodies   *bodies
	turns    *turns
	known    func(remote string) // called with the connections of callers who have shown who they are
	bodyTime time.Duration
}

func newWebhooks(hooks *admission, callers *callers, known func(string)) *webhooks {
	w := &webhooks{
		handlers: map[string]http.Handler{}, callers: callers, bodies: newBodies(maxBodies, maxBodyBytes),
		turns: newTurns(maxTurns, maxTurnsPerSource), known: known, bodyTime: bodyTime,
	}
	for path, admit := range hooks.paths() {
		w.handlers[path] = review(admit)
	}
	return w
}

// before answers webhook calls and passes on all else.
func (h *webhooks) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if handler, ok := h.handlers[r.URL.Path]; ok {
			h.serve(w, r, handler)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (h *webhooks) serve(w http.ResponseWriter, r *http.Request, handler http.Handler) {
	defer func() {
		if reason := recover(); reason != nil {
			klog.ErrorS(fmt.Errorf("%v", reason), "webhook panicked", "path", r.URL.Path, "stack",
				string(debug.Stack()))
			refuseCall(w, apierrors.NewInternalError(errors.New("the webhook failed; see virt-api's log")))
		}
	}()
	identified, err := h.callers.check(r.Context(), r.TLS)
	if err != nil {
		hangUp(w)
		refuseCall(w, err)
		return
	}
	if identified {
		h.known(r.RemoteAddr)
	}
	source := sourceOf(r.RemoteAddr)
	body, done, err := h.bodies.read(w, r, source, h.bodyTime)
	if err != nil {
		hangUp(w)
		refuseCall(w, err)
		return
	}
	defer done()
	ctx, cancel := context.WithTimeout(r.Context(), reviewTime)
	defer cancel()
	if !identified {
		end, err := h.turns.take(ctx, source)
		if err != nil {
			refuseCall(w, apierrors.NewTooManyRequests("virt-api has too many webhook calls to answer", 1))
			return
		}
		defer end()
	}
	r = r.WithContext(ctx)
	r.Body = body
	handler.ServeHTTP(w, r)
}

// hangUp makes the connection end with the answer, instead of reading on to where the next request would begin.
func hangUp(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	_ = http.NewResponseController(w).SetReadDeadline(past) // a connection that is gone has no next request
}

// past is a deadline that is over.
var past = time.Unix(1, 0)

func refuseCall(w http.ResponseWriter, err error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	stream.WriteStatus(w, status.Status())
}

// sourceOf returns the address that a request comes from, without the port.
func sourceOf(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	return host
}

// memory is a body that has been read.
type memory struct{ *bytes.Reader }

// Close implements io.Closer.
func (memory) Close() error { return nil }

// webhook answers one kind of admission request.
type webhook = func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error)
