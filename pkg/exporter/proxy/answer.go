package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/virtkit/virtkit/pkg/names"
)

// errAway is the reason for which an answer is not passed on.
var errAway = errors.New("it leads to another address")

// answers are the headers of an answer that are passed on: those of a download. Any other may mean something for the
// host that all exports have, as cookies do, and the reports of browsers, which have the addresses with the tokens.
var answers = []string{
	"Accept-Ranges", "Allow", "Content-Disposition", "Content-Length", "Content-Range", "Content-Type", "Etag",
	"Last-Modified", "Location", "Retry-After", names.HeaderDiskSize, names.HeaderNotIncluded,
}

// answered checks an answer of an export's server, which is a tenant's: it sets nothing for the host that all exports
// have, and cannot lead a client, with its token, to another host.
func answered(response *http.Response) error {
	header := http.Header{}
	for _, name := range answers {
		name = http.CanonicalHeaderKey(name)
		if values := response.Header[name]; len(values) > 0 {
			header[name] = values
		}
	}
	secure(header)
	response.Header = header
	switch code := response.StatusCode; {
	case code == http.StatusSwitchingProtocols:
		return errAway
	case code >= 300 && code < 400 && code != http.StatusNotModified && !below(header.Get("Location")):
		return fmt.Errorf("answer %s: %w", strconv.Itoa(code), errAway)
	}
	return nil
}

// below reports whether a location is one next to the request's, as that of a directory is.
func below(location string) bool {
	at, err := url.Parse(location)
	return err == nil && location != "" && at.Scheme == "" && at.Host == "" && !strings.HasPrefix(location, "/") &&
		!strings.Contains(location, `\`) && !strings.HasPrefix(location, "..")
}

// once takes one answer, without what may come before it and after its body.
type once struct{ transport *http.Transport }

// untraced is a context whose values nobody sees.
type untraced struct{ context.Context }

// Value implements context.Context.
func (untraced) Value(any) any { return nil }

// RoundTrip implements http.RoundTripper.
func (o once) RoundTrip(r *http.Request) (*http.Response, error) {
	// httputil.ReverseProxy passes on answers 1xx by a trace in the context. Without it the transport drops them, and
	// bounds them with the headers.
	response, err := o.transport.RoundTrip(r.WithContext(untraced{r.Context()}))
	if err != nil {
		return nil, err
	}
	// The body's end writes a trailer into the response that the transport has made, which nobody looks at then.
	taken := *response
	taken.Trailer = nil
	return &taken, nil
}
