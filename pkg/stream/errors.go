package stream

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"unicode/utf8"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Close codes that virtkit's servers use; RFC 6455 section 7.4.
const (
	// CodeNormal is the end of the stream.
	CodeNormal = websocket.CloseNormalClosure
	// CodeGoingAway says that the server shuts down; a client may connect again.
	CodeGoingAway = websocket.CloseGoingAway
	// CodePolicy says that the server ended the stream on purpose, such as a console that another
	// client has taken over; the reason says why.
	CodePolicy = websocket.ClosePolicyViolation
	// CodeInternal says that something behind the server broke.
	CodeInternal = websocket.CloseInternalServerErr
	// CodeAbnormal is never sent: it stands for a connection that broke without a close frame.
	CodeAbnormal = websocket.CloseAbnormalClosure
)

// CloseError is the end of a stream other than a normal one.
type CloseError struct {
	// Code is the websocket close code, CodeAbnormal when the connection broke.
	Code int
	// Reason is the peer's text, possibly empty.
	Reason string

	cause error
}

func (e *CloseError) Error() string {
	switch {
	case e.Code == CodeAbnormal:
		return "connection lost: " + e.Reason
	case e.Reason == "":
		return fmt.Sprintf("connection closed by the peer (code %d)", e.Code)
	default:
		return e.Reason
	}
}

// Unwrap returns the network's error of a connection that broke, or nil.
func (e *CloseError) Unwrap() error { return e.cause }

// closeReason returns the code and text that tell the other side of a splice about err.
func closeReason(err error) (int, string) {
	var closed *CloseError
	if errors.As(err, &closed) {
		return closed.Code, closed.Reason
	}
	return CodeInternal, Cause(err)
}

// sendableCode replaces the codes that must not travel in a close frame.
func sendableCode(code int) int {
	switch code {
	case websocket.CloseNoStatusReceived:
		return CodeNormal
	case websocket.CloseAbnormalClosure, websocket.CloseTLSHandshake, 0:
		return CodeInternal
	}
	return code
}

// maxReason is the longest reason of a close frame: 125 bytes less the code.
const maxReason = 123

func truncateReason(reason string) string {
	if len(reason) <= maxReason {
		return reason
	}
	cut := maxReason
	for cut > 0 && !utf8.RuneStart(reason[cut]) {
		cut--
	}
	return reason[:cut]
}

// causeNotRunning distinguishes a guest that does not run from a request that is wrong.
const causeNotRunning metav1.CauseType = "GuestNotRunning"

// NewNotRunning returns the answer to who asks for a stream of a guest that does not run, or not yet. Its code is 400,
// after which KubeVirt's clients try again; after any other they give up.
func NewNotRunning(text string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest, Message: text,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: causeNotRunning, Message: text}}},
	}}
}

// NotRunning reports whether an error is NewNotRunning's, also as it comes back from a server.
func NotRunning(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != http.StatusBadRequest || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes,
		func(c metav1.StatusCause) bool { return c.Type == causeNotRunning })
}

// NotYet reports whether a refused stream may be granted later: the guest does not run, or is in a state in which it
// cannot have one (409).
func NotYet(err error) bool { return NotRunning(err) || apierrors.IsConflict(err) }

// Reasons of the Status with which virt-handler answers, with code 409, when a guest's port cannot be forwarded.
const (
	// ReasonPortRefused is a running guest in which nothing listens on the port.
	ReasonPortRefused metav1.StatusReason = "PortRefused"
	// ReasonGuestUnreachable is a guest whose network does not answer.
	ReasonGuestUnreachable metav1.StatusReason = "GuestUnreachable"
)
