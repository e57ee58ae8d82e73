package proxy

import "sync"

// slots bounds the requests that are answered at once, in all and to the exports of one namespace: what answers there
// is a tenant's, and may let them wait for hours.
type slots struct {
	mu  sync.Mutex
	all int
	of  map[string]int
}

// take takes a slot for a namespace, which is given back with give. It reports whether there was one.
func (s *slots) take(namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= requests || s.of[namespace] >= ofNamespace {
		return false
	}
	if s.of == nil {
		s.of = map[string]int{}
	}
	s.all++
	s.of[namespace]++
	return true
}

func (s *slots) give(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.of[namespace]--; s.of[namespace] == 0 {
		delete(s.of, namespace)
	}
}
