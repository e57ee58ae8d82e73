package outage

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Two that follow meet one outage: it is reported once, and over when both have had an answer.
func TestOneOutageIsReportedOnce(t *testing.T) {
	now := time.Unix(1000, 0)
	var said []string
	ctx := With(t.Context(), &Reporter{
		Lost: func(err error) { said = append(said, err.Error()) },
		Back: func(after time.Duration) { said = append(said, after.String()) },
		Now:  func() time.Time { return now },
	})
	a, b, c := Follow(ctx), Follow(ctx), Follow(ctx)
	refused := errors.New("connection refused")
	a.Answered()
	a.Lost(ctx, refused)
	b.Lost(ctx, refused)
	a.Lost(ctx, errors.New("still refused"))
	now = now.Add(7 * time.Second)
	a.Answered()
	a.Answered()
	if want := []string{"connection refused"}; !slices.Equal(said, want) {
		t.Errorf("amid the outage: said %q, want %q", said, want)
	}
	b.Answered()
	c.Lost(ctx, apierrors.NewServiceUnavailable("etcd is away"))
	c.End()
	a.Answered()
	if want := []string{"connection refused", "7s", "etcd is away"}; !slices.Equal(said, want) {
		t.Errorf("said %q, want %q", said, want)
	}
}

// An outage counts from when the request began that failed.
func TestOutageCountsFromItsFirstRequest(t *testing.T) {
	now := time.Unix(1000, 0)
	var took time.Duration
	ctx := With(t.Context(), &Reporter{
		Lost: func(error) {}, Back: func(after time.Duration) { took = after }, Now: func() time.Time { return now },
	})
	f := Follow(ctx)
	f.Asks()
	f.Answered()
	for range 3 { // three requests, each of which hangs
		now = now.Add(time.Second)
		f.Asks()
		now = now.Add(10 * time.Second)
		f.Lost(ctx, errors.New("timed out"))
	}
	now = now.Add(time.Second)
	f.Asks()
	f.Answered()
	if want := 33 * time.Second; took != want {
		t.Errorf("it took %s, want %s", took, want)
	}
	Follow(With(ctx, nil)).Asks() // nobody is notified
}

// An answer is no outage, nor is the end of what was asked for; and nobody is notified.
func TestNoOutage(t *testing.T) {
	ctx := With(t.Context(), &Reporter{
		Lost: func(err error) { t.Errorf("reported %v", err) },
		Now:  time.Now,
	})
	f := Follow(ctx)
	f.Lost(ctx, nil)
	f.Lost(ctx, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil))
	f.Lost(ctx, apierrors.NewResourceExpired("too old"))
	ended, cancel := context.WithCancel(ctx)
	cancel()
	f.Lost(ended, context.Canceled)
	f.Answered()
	f.End()
	nobody := Follow(With(ctx, nil))
	nobody.Lost(ctx, errors.New("no"))
	nobody.Answered()
	nobody.End()
}
