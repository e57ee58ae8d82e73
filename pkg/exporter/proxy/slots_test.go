package proxy

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// hang sends requests until as many have come to what lets them wait, and returns what ends them.
func hang(t *testing.T, front *httptest.Server, path string, came <-chan struct{}, count int) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	for range count {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, front.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header = withToken()
		go func() {
			defer func() { done <- struct{}{} }()
			if response, err := front.Client().Do(request); err == nil {
				t.Errorf("%s: %s", path, response.Status)
				_ = response.Body.Close()
			}
		}()
	}
	for n := range count {
		select {
		case <-came:
		case <-time.After(30 * time.Second):
			t.Fatalf("%d of %d requests are under way", n, count)
		}
	}
	return func() {
		cancel()
		for range count {
			<-done
		}
	}
}

// A tenant's server that lets all requests wait is in the way of its namespace alone.
func TestSlotsOfNamespace(t *testing.T) {
	came := make(chan struct{})
	var asked atomic.Int32
	front := newProxy(t, func(_ http.ResponseWriter, r *http.Request) {
		if asked.Add(1) <= ofNamespace {
			came <- struct{}{}
			<-r.Context().Done()
		}
	})
	end := hang(t, front, disk, came, ofNamespace)
	if r, _ := ask(t, front, http.MethodGet, disk, withToken()); r.StatusCode != http.StatusServiceUnavailable ||
		r.Header.Get("Retry-After") == "" {
		t.Errorf("one more: %s", r.Status)
	}
	const elsewhere = "/api/export.kubevirt.io/v1beta1/namespaces/ns2/virtualmachineexports/e/volumes/root/disk.img"
	if r, _ := ask(t, front, http.MethodGet, elsewhere, withToken()); r.StatusCode != http.StatusOK {
		t.Errorf("another namespace: %s", r.Status)
	}
	end()
	h := front.Config.Handler.(*Handler)
	for deadline := time.Now().Add(30 * time.Second); !h.slots.take("ns"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("slots of requests that have ended are taken still")
		}
	}
}

// All namespaces together have a bound, too.
func TestSlots(t *testing.T) {
	var s slots
	for n := range requests {
		if !s.take(fmt.Sprint(n)) {
			t.Fatalf("number %d is refused", n)
		}
	}
	if s.take("more") {
		t.Error("there is no bound")
	}
	s.give("0")
	if !s.take("more") || len(s.of) != requests {
		t.Errorf("none is free, or one is remembered: %d namespaces", len(s.of))
	}
}

// slow looks for exports of one name for ever.
type slow struct {
	Finder
	came chan struct{}
}

func (s slow) Find(ctx context.Context, namespace, name string) (*Export, error) {
	if name == "slow" {
		s.came <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Finder.Find(ctx, namespace, name)
}

// Requests of anybody to exports that nobody has found yet take no slot of a download.
func TestLookupsTakeNoSlot(t *testing.T) {
	front := newProxy(t, func(http.ResponseWriter, *http.Request) {})
	h, came := front.Config.Handler.(*Handler), make(chan struct{})
	h.Exports, h.Look = slow{h.Exports, came}, time.Minute
	end := hang(t, front, at+"slow/volumes/root/disk.img", came, requests)
	defer end()
	if r, _ := ask(t, front, http.MethodGet, disk, withToken()); r.StatusCode != http.StatusOK {
		t.Error(r.Status)
	}
}
