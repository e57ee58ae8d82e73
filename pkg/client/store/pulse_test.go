package store

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"
)

// TestPulse is of a server that hangs and goes on: since when it is silent, and how often it is asked.
func TestPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hangs, refuses bool
		asked, changes := 0, 0
		p := NewPulse(func(ctx context.Context) error {
			asked++
			switch {
			case hangs:
				<-ctx.Done()
				return ctx.Err()
			case refuses:
				return apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "a", nil)
			}
			return nil
		}, func() { changes++ }, time.Now)
		ctx, cancel := context.WithCancel(t.Context())
		var ended atomic.Bool
		go func() {
			p.Run(ctx)
			ended.Store(true)
		}()
		pass := func(d time.Duration) {
			time.Sleep(d) // the bubble's clock
			synctest.Wait()
		}

		// One that says something is not asked; a quiet one is every ten seconds, and a refusal is an answer.
		for range 60 {
			pass(time.Second)
			p.answered()
		}
		if asked > 0 || p.State().Stale() {
			t.Errorf("a server that is heard was asked %d times; %+v", asked, p.State())
		}
		refuses = true
		pass(time.Minute + time.Second)
		if asked != 6 || p.State().Stale() || changes > 0 {
			t.Errorf("a quiet server was asked %d times in a minute; %+v", asked, p.State())
		}

		hangs = true
		began := time.Now()
		last := began.Add(-time.Second)
		pass(13 * time.Second)
		if p.State().Stale() {
			t.Error("silent before it was asked")
		}
		pass(2 * time.Second)
		if s := p.State(); !s.Since.Equal(last) || !errors.Is(s.Err, context.DeadlineExceeded) || changes != 1 {
			t.Errorf("after 15 seconds: %+v, %d changes, not since %v", s, changes, last)
		}
		pass(time.Minute)
		if s := p.State(); !s.Since.Equal(last) || changes != 1 {
			t.Errorf("a minute later: %+v, %d changes", s, changes)
		}
		p.answered() // a feed's
		if p.State().Stale() || changes != 2 {
			t.Errorf("when it was heard: %+v, %d changes", p.State(), changes)
		}
		heard := time.Now()
		pass(20 * time.Second)
		for name, c := range map[string]struct {
			from, to time.Time
			want     time.Duration
		}{
			"all of it":             {began.Add(-time.Hour), heard, heard.Sub(last)},
			"its beginning":         {began.Add(-time.Hour), last.Add(time.Second), time.Second},
			"its end, and the next": {heard.Add(-time.Second), time.Now(), 21 * time.Second},
			"before":                {began.Add(-time.Hour), last, 0},
		} {
			if got := p.Away(c.from, c.to); got != c.want {
				t.Errorf("%s: away for %v, not %v", name, got, c.want)
			}
		}
		hangs = false
		pass(8 * time.Second)
		if p.State().Stale() || changes != 4 {
			t.Errorf("when it answers: %+v, %d changes", p.State(), changes)
		}

		cancel()
		pass(0)
		if !ended.Load() {
			t.Error("it goes on")
		}
	})
}

// TestPulseRegular is of a probe whose answers are wanted.
func TestPulseRegular(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		p := NewPulse(func(context.Context) error { asked++; return nil }, func() {}, time.Now)
		p.Regular = true
		go p.Run(t.Context())
		synctest.Wait()
		if asked != 1 {
			t.Errorf("asked %d times at first", asked)
		}
		for range 60 {
			time.Sleep(time.Second)
			p.answered()
		}
		if asked < 4 || asked > 6 {
			t.Errorf("asked %d times in a minute", asked)
		}
	})
}

// TestHangingServer is of an API server whose connections stay open and that answers nothing any more, new connections
// neither: client-go does not tell the reflector for minutes.
func TestHangingServer(t *testing.T) {
	hang, hangs := make(chan struct{}), atomic.Bool{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hangs.Load() {
			<-hang
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			_, _ = w.Write([]byte(`{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[]}`))
			return
		}
		if r.URL.Query().Get("sendInitialEvents") != "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-hang:
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	rc, err := rest.RESTClientFor(&rest.Config{
		Host: server.URL, APIPath: "/api", QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		ContentConfig: rest.ContentConfig{
			GroupVersion: &schema.GroupVersion{Version: "v1"}, NegotiatedSerializer: scheme.Codecs.WithoutConversion(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	request := func(o *metav1.ListOptions) *rest.Request {
		return rc.Get().Resource("nodes").VersionedParams(o, scheme.ParameterCodec)
	}
	changes := make(chan struct{}, 1)
	changed := func() {
		select {
		case changes <- struct{}{}:
		default:
		}
	}
	pulse := NewPulse(func(ctx context.Context) error {
		return rc.Get().AbsPath("/version").MaxRetries(0).Do(ctx).Error()
	}, changed, time.Now)
	pulse.quiet, pulse.limit, pulse.again = 200*time.Millisecond, 100*time.Millisecond, 50*time.Millisecond
	source := Source{
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return request(&o).Do(ctx).Get()
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			return request(&o).Watch(ctx)
		},
		Pulse: pulse,
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{}, 3)
	start := func(run func()) { go func() { run(); ended <- struct{}{} }() }
	first, later := NewTable[Node](changed), NewTable[Node](changed)
	start(func() { pulse.Run(ctx) })
	start(func() { Feed(ctx, first, "nodes", source, OfNode) })
	eventually(t, changes, "listed", func() bool { return first.State().Synced && !first.State().Stale() })

	before := time.Now()
	hangs.Store(true)
	eventually(t, changes, "lost", func() bool { return first.State().Stale() })
	if s := first.State(); s.Err == nil || !s.Synced || time.Since(before) > 5*time.Second ||
		s.Since.After(before.Add(time.Second)) {
		t.Errorf("after %v: %+v", time.Since(before), s)
	}
	start(func() { Feed(ctx, later, "nodes", source, OfNode) })
	eventually(t, changes, "lost before anything came", func() bool { return later.State().Stale() })
	if s := later.State(); s.Err == nil || s.Synced {
		t.Errorf("one that is opened then: %+v", s)
	}

	hangs.Store(false)
	close(hang)
	eventually(t, changes, "found again", func() bool { return !first.State().Stale() && later.State().Synced })
	cancel()
	for range 3 {
		<-ended
	}
}

// TestRefusedIsNotSilent is of what the server refuses: it says so, and the time without a connection is another.
func TestRefusedIsNotSilent(t *testing.T) {
	refused := apierrors.NewForbidden(v1.Resource("virtualmachines"), "", nil)
	start := time.Unix(1000, 0)
	table := NewTable[Node](func() {})
	table.Lost(start, refused)
	p := &Pulse{since: start.Add(time.Minute), err: context.DeadlineExceeded}
	table.follow(p)
	if s := table.State(); !apierrors.IsForbidden(s.Err) {
		t.Errorf("a refusal, while the server is silent: %+v", s)
	}
	table.follow(nil)
	table.Lost(start.Add(time.Hour), errors.New("connection refused"))
	table.Lost(start.Add(2*time.Hour), errors.New("connection refused"))
	if s := table.State(); !s.Since.Equal(start.Add(time.Hour)) {
		t.Errorf("when the connection went: %+v", s)
	}
}
