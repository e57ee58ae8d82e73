package virtapi

import (
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/stream"
)

const (
	// locationLife is the time for which a location is cached. It is as long as the API server machinery caches an
	// authorization.
	locationLife = 10 * time.Second
	maxLocations = 4096
)

// locations is a cache of where VMIs were found to run, so that of many connections to one guest the first reads the
// VMI and the others do not. virt-handler decides: it gets the VMI that is meant, and refuses when that does not run
// there (any more); then the VMI is read again.
type locations struct {
	now func() time.Time

	mu    sync.Mutex
	known map[locationKey]location
}

// locationKey identifies a user's request for a location: a VM's VMI may be no longer the VM's.
type locationKey struct {
	resource string
	types.NamespacedName
}

type location struct {
	uid   types.UID // the instance's
	node  string
	until time.Time
}

func newLocations(now func() time.Time) *locations {
	return &locations{now: now, known: map[locationKey]location{}}
}

func (p *locations) of(key locationKey) (location, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found, ok := p.known[key]
	return found, ok && p.now().Before(found.until)
}

func (p *locations) note(key locationKey, vmi *v1.VirtualMachineInstance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.known) >= maxLocations {
		clear(p.known)
	}
	p.known[key] = location{uid: vmi.UID, node: vmi.Status.NodeName, until: p.now().Add(locationLife)}
}

func (p *locations) forget(key locationKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, key)
}

// ofGuest reports whether an error is about the guest that was asked for, or who asks, and not about where it was
// looked for.
func ofGuest(err error) bool {
	switch apierrors.ReasonForError(err) {
	case stream.ReasonPortRefused, stream.ReasonGuestUnreachable, metav1.StatusReasonTooManyRequests:
		return true
	}
	return false
}
