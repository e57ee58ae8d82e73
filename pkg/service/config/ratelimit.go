package config

import (
	"context"
	"sync/atomic"

	"k8s.io/client-go/util/flowcontrol"
	v1 "kubevirt.io/api/core/v1"
)

// RateLimit is how many requests a second a component may make to the API server, and how many at once after a pause.
// The zero value is what the component's own flags say.
type RateLimit struct {
	QPS   float32
	Burst int
}

// RateLimits are those of the components.
type RateLimits struct{ API, Controller, Handler RateLimit }

func rateLimit(from *v1.ReloadableComponentConfiguration) RateLimit {
	if from == nil || from.RestClient == nil || from.RestClient.RateLimiter == nil ||
		from.RestClient.RateLimiter.TokenBucketRateLimiter == nil {
		return RateLimit{}
	}
	bucket := from.RestClient.RateLimiter.TokenBucketRateLimiter
	return RateLimit{QPS: bucket.QPS, Burst: bucket.Burst}
}

// Limiter is a client's rate limiter that can be set while the client works. All clients that have it share its bucket.
type Limiter struct {
	own RateLimit
	now atomic.Pointer[limited]
}

// limited is a limiter and what it was made of.
type limited struct {
	flowcontrol.RateLimiter
	of RateLimit
}

var _ flowcontrol.RateLimiter = (*Limiter)(nil)

// NewLimiter limits as the component's own flags say; a QPS that is not positive is no limit.
func NewLimiter(own RateLimit) *Limiter {
	l := &Limiter{own: own}
	l.Set(RateLimit{})
	return l
}

// Set changes the limit; the zero value is the component's own. Who waits already waits as before.
func (l *Limiter) Set(limit RateLimit) {
	if limit == (RateLimit{}) {
		limit = l.own
	}
	if old := l.now.Load(); old != nil && old.of == limit {
		return
	}
	next := &limited{of: limit}
	if limit.QPS > 0 {
		next.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(limit.QPS, max(limit.Burst, 1))
	} else {
		next.RateLimiter = flowcontrol.NewFakeAlwaysRateLimiter()
	}
	l.now.Store(next)
}

// TryAccept implements flowcontrol.RateLimiter.
func (l *Limiter) TryAccept() bool { return l.now.Load().TryAccept() }

// Accept implements flowcontrol.RateLimiter.
func (l *Limiter) Accept() { l.now.Load().Accept() }

// Wait implements flowcontrol.RateLimiter.
func (l *Limiter) Wait(ctx context.Context) error { return l.now.Load().Wait(ctx) }

// Stop implements flowcontrol.RateLimiter.
func (l *Limiter) Stop() { l.now.Load().Stop() }

// QPS implements flowcontrol.RateLimiter.
func (l *Limiter) QPS() float32 { return l.now.Load().QPS() }

// OnRateLimit sets a limiter to a component's limit after each change of the configuration.
func (f *Follower) OnRateLimit(l *Limiter, of func(RateLimits) RateLimit) {
	f.OnChange(func() { l.Set(of(f.Current().RateLimits)) })
}
