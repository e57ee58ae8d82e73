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
	// placeLife is how long a place is believed. It is as long as the API server machinery believes an authorization.
	placeLife = 10 * time.Second
	maxPlaces = 4096
)

// places remembers where instances were found to run, so that of many connections to one guest the first reads the
// instance and the others do not. Only virt-handler's word counts: it is told which instance is meant, and refuses when that
// does not run there (any more); then the instance is read again.
type places struct {
	now func() time.Time

	mu    sync.Mutex
	known map[placeKey]place
}

// placeKey is what a user asked for: a VM's instance may be no longer the VM's.
type placeKey struct {
	resource string
	types.NamespacedName
}

type place struct {
	uid   types.UID // the instance's
	node  string
	until time.Time
}

func newPlaces(now func() time.Time) *places {
	return &places{now: now, known: map[placeKey]place{}}
}

func (p *places) of(key placeKey) (place, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found, ok := p.known[key]
	return found, ok && p.now().Before(found.until)
}

func (p *places) note(key placeKey, vmi *v1.VirtualMachineInstance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.known) >= maxPlaces {
		clear(p.known)
	}
	p.known[key] = place{uid: vmi.UID, node: vmi.Status.NodeName, until: p.now().Add(placeLife)}
}

func (p *places) forget(key placeKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, key)
}

// ofGuest reports whether an error is about the guest that was asked for, or who asks, and not about where it was looked for.
func ofGuest(err error) bool {
	switch apierrors.ReasonForError(err) {
	case stream.ReasonPortRefused, stream.ReasonGuestUnreachable, metav1.StatusReasonTooManyRequests:
		return true
	}
	return false
}
