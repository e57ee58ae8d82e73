package handler

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// passLimit is how long a pass may take. It waits for the API server alone, whose client gives up much earlier.
const passLimit = 5 * time.Minute

// passes are those under way, of which one that does not end is a fault of virt-handler's.
type passes struct {
	mu    sync.Mutex
	begun map[types.NamespacedName]time.Time
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

// stuck gives a VMI over which a pass has taken longer than passLimit.
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
