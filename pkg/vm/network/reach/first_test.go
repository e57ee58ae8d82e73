package reach

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// conn is a connection that knows its name and whether it is closed.
type conn struct {
	net.Conn
	name   string
	closed bool
}

func (c *conn) Close() error { c.closed = true; return nil }

// after returns a dial that ends after a time, or with its context unless it is deaf.
func after(d time.Duration, deaf bool, c *conn, err error) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		over := ctx.Done()
		if deaf {
			over = nil
		}
		select {
		case <-time.After(d):
		case <-over:
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		return c, nil
	}
}

func TestFirst(t *testing.T) {
	silent := fmt.Errorf("connect: %w", unix.EHOSTUNREACH)
	refused := fmt.Errorf("connect: %w", unix.ECONNREFUSED)
	foreign := &AddressError{Reason: "it is the node's"}
	type dial struct {
		takes time.Duration
		deaf  bool
		err   error
	}
	const soon = time.Millisecond
	for name, test := range map[string]struct {
		four, six dial
		want      string // of the connection
		err       error
		took      time.Duration
	}{
		"both answer": {
			four: dial{takes: soon}, six: dial{takes: soon}, want: "IPv4", took: soon,
		},
		"within the head start": {
			four: dial{takes: headStart - 1}, want: "IPv4", took: headStart - 1,
		},
		"slow, and before IPv6": {
			four: dial{takes: headStart + soon}, six: dial{takes: time.Second}, want: "IPv4", took: headStart + soon,
		},
		"refused at once": {
			four: dial{takes: soon, err: refused}, six: dial{takes: soon}, want: "IPv6", took: 2 * soon,
		},
		"another's address": {
			four: dial{err: foreign}, six: dial{takes: soon}, want: "IPv6", took: soon,
		},
		"no answer": {
			four: dial{takes: time.Hour}, six: dial{takes: soon}, want: "IPv6", took: headStart + soon,
		},
		"both, the second too late": {
			four: dial{takes: time.Second, deaf: true}, six: dial{takes: soon}, want: "IPv6", took: time.Second,
		},
		"refused, and no answer": {
			four: dial{takes: time.Second, err: silent}, six: dial{err: refused}, err: refused, took: time.Second,
		},
		"no answer, and refused": {
			four: dial{err: refused}, six: dial{takes: time.Second, err: silent}, err: refused, took: time.Second,
		},
		"foreign, and refused": {
			four: dial{err: refused}, six: dial{err: foreign}, err: foreign,
		},
		"neither": {
			four: dial{takes: time.Hour}, six: dial{takes: time.Hour}, err: context.DeadlineExceeded, took: time.Minute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				four, six := &conn{name: "IPv4"}, &conn{name: "IPv6"}
				start := time.Now()
				got, err := first(ctx, []func(context.Context) (net.Conn, error){
					after(test.four.takes, test.four.deaf, four, test.four.err),
					after(test.six.takes, test.six.deaf, six, test.six.err),
				})
				if !errors.Is(err, test.err) {
					t.Errorf("error %v, want %v", err, test.err)
				}
				if took := time.Since(start); took != test.took {
					t.Errorf("it took %s, want %s", took, test.took)
				}
				if test.want == "" {
					return
				}
				c, _ := got.(*conn)
				if c == nil || c.name != test.want || c.closed {
					t.Fatalf("got %+v, want an open one of %s", got, test.want)
				}
				if other := map[string]*conn{"IPv4": six, "IPv6": four}[test.want]; test.four.deaf && !other.closed {
					t.Errorf("the connection of %s is still open", other.name)
				}
			})
		})
	}
}
