package handler

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// passLimit bounds a pass. It waits for the API server alone, whose client gives up much earlier.
const passLimit = 5 * time.Minute

// passes makes passes over VMIs and knows those under way, for the liveness probe: one that does not end is a fault of
// virt-handler's, and controller-runtime only counts it.
type passes struct {
	reconciler reconcile.Reconciler
	now        func() time.Time

	mu    sync.Mutex
	begun map[types.NamespacedName]time.Time
}

// Reconcile makes a pass. Passes that virt-handler's end cuts short return no error.
func (p *passes) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	p.begin(request.NamespacedName, p.now())
	defer p.end(request.NamespacedName)
	result, err := p.reconciler.Reconcile(ctx, request)
	if ctx.Err() != nil {
		return reconcile.Result{}, nil
	}
	return result, err
}

func (p *passes) begin(vmi types.NamespacedName, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.begun == nil {
		p.begun = map[types.NamespacedName]time.Time{}
	}
	p.begun[vmi] = now
}

func (p *passes) end(vmi types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.begun, vmi)
}

// stuck returns a VMI over which a pass has taken longer than passLimit.
func (p *passes) stuck(now time.Time) (types.NamespacedName, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for vmi, begun := range p.begun {
		if now.Sub(begun) > passLimit {
			return vmi, true
		}
	}
	return types.NamespacedName{}, false
}
