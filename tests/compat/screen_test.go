//go:build e2e

package compat

import (
	"regexp"
	"strings"
	"sync"
)

// seen collects what a console printed; it is written and read concurrently.
type seen struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *seen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *seen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *seen) matches(pattern string) bool {
	return regexp.MustCompile(pattern).MatchString(s.String())
}
