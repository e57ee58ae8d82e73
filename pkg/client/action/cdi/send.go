package cdi

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// StatusError is an answer of the upload proxy that is no success.
type StatusError struct {
	Host string
	Code int
	// Text is what the proxy, or CDI's pod behind it, has to say; it may be empty.
	Text string
}

func (e *StatusError) Error() string {
	out := fmt.Sprintf("the upload proxy at %s says %d %s", e.Host, e.Code, http.StatusText(e.Code))
	switch {
	case e.Text != "":
		return out + ": " + e.Text
	case e.Code == http.StatusUnauthorized:
		return out + ": it does not take the token that CDI's API server gives; it may have expired, or be of " +
			"another CDI"
	}
	return out
}

// passes reports whether another try may end otherwise. CDI's pod says of an image that it cannot be taken.
func (e *StatusError) passes() bool {
	switch e.Code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	}
	refused := strings.Contains(e.Text, "Saving stream failed") &&
		!strings.Contains(e.Text, io.ErrUnexpectedEOF.Error())
	return e.Code >= http.StatusInternalServerError && !refused
}

// CertificateError is an upload proxy that is not known to be the one that is meant.
type CertificateError struct{ Host, Reason string }

func (e *CertificateError) Error() string {
	return fmt.Sprintf("the upload proxy at %s is not trusted: %s; give an address that its certificate is for with "+
		"--uploadproxy-url, or send the image whoever it is with --insecure", e.Host, e.Reason)
}

// StalledError is an upload proxy that has taken no byte for a while.
type StalledError struct {
	Host string
	For  time.Duration
}

func (e *StalledError) Error() string {
	return fmt.Sprintf("the upload proxy at %s has taken nothing for %s", e.Host, e.For)
}

// Unwrap says that the command has waited too long.
func (e *StalledError) Unwrap() error { return action.ErrTimeout }

// send sends the image, and tries again what may pass.
func (u *uploading) send(ctx context.Context) error {
	began, said := time.Now(), false
	for try := uint(0); ; {
		err := u.attempt(ctx, try >= u.Retries)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if u.whole && u.taken(ctx, err) {
			return nil
		}
		writes := u.whole && u.busy && time.Since(began) < mostWriting
		switch {
		case writes: // how it ends is asked until it has
			if u.Waits != nil && !said {
				u.Waits("CDI's pod is busy, it may be with the image, which has left whole; its end is waited for")
			}
			said = true
		case try >= u.Retries || !u.passes(err):
			return err
		case u.Again != nil:
			u.Again(err)
		}
		if err := action.Sleep(ctx, min(u.Poll<<min(try, 3), 8*time.Second)); err != nil {
			return err
		}
		if !writes {
			try++
		}
	}
}

// taken reports whether the image was taken although the attempt to send it, of which every byte has left, has failed
// or been refused.
func (u *uploading) taken(ctx context.Context, err error) bool {
	var status *StatusError
	if errors.As(err, &status) && status.Code == http.StatusConflict {
		return true // it has one
	}
	claim, dv, err := u.read(ctx)
	if err != nil {
		return false
	}
	done, err := u.written(claim, dv)
	return done && err == nil
}

// passes reports whether another try may end otherwise. A proxy that was never reached has the wrong address.
func (u *uploading) passes(err error) bool {
	var status *StatusError
	if errors.As(err, &status) {
		return status.passes()
	}
	var host *action.HostError
	return u.reached && errors.As(err, &host)
}

// attempt gets a token and sends the image with it. The last attempt asks also a proxy that is not ready why.
func (u *uploading) attempt(ctx context.Context, last bool) error {
	u.busy = false
	token, err := u.token(ctx)
	if err != nil {
		return err
	}
	target := u.Proxy.base.JoinPath(pathAsync)
	probe, err := u.ask(ctx, http.MethodHead, target, token, nil)
	switch {
	case err != nil:
		return err
	case probe.Code == http.StatusOK:
	case probe.Code >= http.StatusInternalServerError && last: // the answer to a HEAD has no text
	case probe.passes():
		return probe
	default: // an old CDI
		target = u.Proxy.base.JoinPath(pathSync)
	}
	if claim, _, err := u.read(ctx); err == nil {
		u.note(claim) // what became of an earlier try says nothing of this one
	}
	u.doubtful = u.failed // but CDI may yet have to note it
	image := &body{of: io.NewSectionReader(u.Image, 0, u.Size), size: u.Size, show: u.Show}
	defer image.Close()
	answer, err := u.ask(ctx, http.MethodPost, target, token, image)
	u.whole = u.whole || image.whole()
	u.busy = err == nil && answer.Code == http.StatusServiceUnavailable && image.untouched() &&
		probe.Code < http.StatusInternalServerError
	u.failed = u.failed || err != nil || answer.Code != http.StatusOK
	var local *localError
	switch {
	case errors.As(image.failure(), &local):
		return local
	case err != nil:
		return err
	case answer.Code != http.StatusOK:
		return answer
	}
	u.whole = true
	return nil
}

// token asks CDI's API server for a token, which is valid for some minutes, and for this target alone.
func (u *uploading) token(ctx context.Context) (string, error) {
	request := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": strings.TrimPrefix(UploadGroup, "/apis/"), "kind": "UploadTokenRequest",
		"metadata": map[string]any{"name": "token-for-virtctl", "namespace": u.Namespace},
		"spec":     map[string]any{"pvcName": u.Name},
	}}
	made, err := u.api.CreateObject(ctx, UploadGroup, u.Namespace, Tokens, request, false)
	if err != nil {
		return "", fmt.Errorf("ask CDI for a token for the upload to %s: %w", u.target(), err)
	}
	token, _, err := unstructured.NestedString(made.Object, "status", "token")
	if err != nil || token == "" {
		return "", fmt.Errorf("CDI gives no token for the upload to %s", u.target())
	}
	return token, nil
}

// maxAnswer bounds what is read of an answer, bytes.
const maxAnswer = 4 << 10

// ask sends a request and returns the answer, whatever it is. An error says that there is none.
func (u *uploading) ask(
	ctx context.Context, method string, target *url.URL, token string, image *body,
) (*StatusError, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	patience := cmp.Or(u.Patience, time.Minute)
	stall := time.AfterFunc(patience, func() { end(&StalledError{u.Proxy.Host(), patience}) })
	defer stall.Stop()
	var content io.Reader
	if image != nil {
		image.moved = func(last bool) {
			if last {
				stall.Stop() // what CDI makes of it takes as long as it takes
			} else {
				stall.Reset(patience)
			}
		}
		content = image
	}
	request, err := http.NewRequestWithContext(ctx, method, target.String(), content)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	if image != nil {
		request.ContentLength = image.size
		request.Header.Set("Content-Type", "application/octet-stream")
		request.Header.Set("Expect", "100-continue")
	}
	answer, err := u.Proxy.client.Do(request)
	if err != nil {
		return nil, u.why(ctx, err)
	}
	defer answer.Body.Close()
	u.reached = true
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxAnswer)) // what came of it is enough
	out := &StatusError{Host: u.Proxy.Host(), Code: answer.StatusCode}
	location := answer.Header.Get("Location")
	switch {
	case location != "":
		out.Text = "it is at " + uploads.OneLine(location) + "; give that address with --uploadproxy-url"
	case !strings.Contains(answer.Header.Get("Content-Type"), "html"): // a page is for browsers
		out.Text = uploads.OneLine(string(text))
	}
	return out, nil
}

// why returns the error of a request that has no answer.
func (u *uploading) why(ctx context.Context, err error) error {
	var stalled *StalledError
	if errors.As(context.Cause(ctx), &stalled) {
		return &action.HostError{Host: u.Proxy.Host(), Err: stalled}
	}
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}
	var plain tls.RecordHeaderError
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &plain), errors.Is(err, http.ErrSchemeMismatch):
		return &CertificateError{u.Proxy.Host(), "it does not speak TLS"}
	case errors.As(err, &authority):
		return &CertificateError{u.Proxy.Host(), "its certificate is of an authority that this machine does not know"}
	case errors.As(err, &name):
		return &CertificateError{u.Proxy.Host(), name.Error()}
	case errors.As(err, &invalid):
		return &CertificateError{u.Proxy.Host(), invalid.Error()}
	}
	return fmt.Errorf("send the image to CDI's upload proxy: %w", &action.HostError{Host: u.Proxy.Host(), Err: err})
}

// localError is one of reading the image.
type localError struct{ error }

func (e *localError) Unwrap() error { return e.error }

// body is the image as one request sends it. The request may still read from it when there is an answer, until it is
// closed.
type body struct {
	of    io.Reader
	size  int64
	show  func(sent int64)
	moved func(last bool)

	mu     sync.Mutex
	sent   int64
	closed bool
	err    error
}

// Read implements io.Reader.
func (b *body) Read(into []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, io.ErrClosedPipe
	}
	n, err := b.of.Read(into)
	b.sent += int64(n)
	if errors.Is(err, io.EOF) && b.sent < b.size {
		err = fmt.Errorf("it has become smaller: %w", io.ErrUnexpectedEOF)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = &localError{fmt.Errorf("read the image: %w", err)}
		return n, b.err
	}
	b.moved(b.sent == b.size)
	if b.show != nil {
		b.show(b.sent)
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}

func (b *body) whole() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sent == b.size
}

func (b *body) untouched() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sent == 0
}

func (b *body) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}
