package virtapi

import (
	"net"
	"net/http"
	"slices"
	"sync"

	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

const (
	// maxStrangers is the number of unauthenticated connections, and maxStrangersPerSource the number from one source.
	// The API server's are among them when it has no certificate for webhooks, and each new one is until its first
	// request.
	maxStrangers          = 2048
	maxStrangersPerSource = 1024
)

// gate is a listener that bounds unauthenticated connections. When there are too many, it closes the oldest one of the
// source that has most.
type gate struct {
	net.Listener
	most, perSource int

	mu        sync.Mutex
	strangers []*stranger // oldest first
	of        map[string]int
}

// stranger is an unauthenticated connection.
type stranger struct {
	net.Conn
	gate           *gate
	remote, source string
}

func newGate(listener net.Listener, most, perSource int) *gate {
	return &gate{Listener: listener, most: most, perSource: perSource, of: map[string]int{}}
}

// Accept implements net.Listener.
func (g *gate) Accept() (net.Conn, error) {
	conn, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	remote := conn.RemoteAddr().String()
	one := &stranger{Conn: conn, gate: g, remote: remote, source: sourceOf(remote)}
	if victim := g.add(one); victim != nil {
		_ = victim.Conn.Close() // whose peer may be gone
	}
	return one, nil
}

// Close implements net.Conn.
func (s *stranger) Close() error {
	s.gate.forget(func(other *stranger) bool { return other == s })
	return s.Conn.Close()
}

// add counts a connection in and gives the one that has to end for it.
func (g *gate) add(one *stranger) (victim *stranger) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.strangers = append(g.strangers, one)
	g.of[one.source]++
	at := -1
	switch {
	case g.of[one.source] > g.perSource:
		at = slices.IndexFunc(g.strangers, func(s *stranger) bool { return s.source == one.source })
	case len(g.strangers) > g.most:
		for i, s := range g.strangers {
			if at < 0 || g.of[s.source] > g.of[g.strangers[at].source] {
				at = i
			}
		}
	default:
		return nil
	}
	victim = g.strangers[at]
	g.drop(at)
	return victim
}

// known takes a connection out of the unauthenticated ones.
func (g *gate) known(remote string) {
	g.forget(func(s *stranger) bool { return s.remote == remote })
}

func (g *gate) forget(is func(*stranger) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if at := slices.IndexFunc(g.strangers, is); at >= 0 {
		g.drop(at)
	}
}

// drop removes the unauthenticated connection at an index; g.mu is held.
func (g *gate) drop(at int) {
	source := g.strangers[at].source
	g.strangers = slices.Delete(g.strangers, at, at+1)
	if g.of[source]--; g.of[source] == 0 {
		delete(g.of, source)
	}
}

// welcome takes the connections of authenticated users out of the unauthenticated ones. It stands behind
// authentication.
func (g *gate) welcome(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, ok := apirequest.UserFrom(r.Context()); ok && info.GetName() != user.Anonymous {
			g.known(r.RemoteAddr)
		}
		next.ServeHTTP(w, r)
	})
}
