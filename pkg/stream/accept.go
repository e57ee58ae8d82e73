package stream

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsUpgrade reports whether r asks for a websocket.
func IsUpgrade(r *http.Request) bool { return websocket.IsWebSocketUpgrade(r) }

// Accept upgrades the request to a websocket. Any Origin is accepted, since credentials never come from
// cookies; so is a client that offers no subprotocol. On an error the response, a metav1.Status, has
// been written.
func Accept(w http.ResponseWriter, r *http.Request, opts Options) (*Conn, error) {
	upgrader := websocket.Upgrader{
		ReadBufferSize:  frameBuffer,
		WriteBufferSize: frameBuffer,
		WriteBufferPool: &writeBuffers,
		Subprotocols:    opts.withDefaults().subprotocols(),
		CheckOrigin:     func(*http.Request) bool { return true },
		Error: func(w http.ResponseWriter, _ *http.Request, code int, reason error) {
			WriteStatus(w, statusFor(code, reason))
		},
	}
	ws, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return nil, fmt.Errorf("upgrade to a websocket: %w", err)
	}
	return newConn(ws, opts), nil
}

func statusFor(code int, reason error) metav1.Status {
	s := metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Message: reason.Error()}
	switch code {
	case http.StatusBadRequest:
		s.Reason = metav1.StatusReasonBadRequest
	case http.StatusMethodNotAllowed:
		s.Reason = metav1.StatusReasonMethodNotAllowed
	case http.StatusForbidden:
		s.Reason = metav1.StatusReasonForbidden
	default:
		s.Reason = metav1.StatusReasonInternalError
	}
	return s
}

// WriteStatus writes an error response as every API server does: metav1.Status in JSON, which Dial
// turns into the same error again, with the header Retry-After if its details say when.
func WriteStatus(w http.ResponseWriter, status metav1.Status) {
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	body, err := json.Marshal(status)
	if err != nil { // strings and numbers only
		panic(err)
	}
	code := int(status.Code)
	if code == 0 {
		code = http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/json")
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	w.WriteHeader(code)
	_, _ = w.Write(body) // the client is gone: nobody to tell
}
