package written

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Creations remembers the UIDs of the dependents that were created for each object, and their purpose. Names, labels
// and owner references do not show who created an object; the UID in the API server's answer does. The memory is lost
// with the process, so a UID that must be trusted later is written to a status before anybody acts on it. The zero
// value is empty; it may be used by several goroutines.
type Creations struct {
	mu     sync.Mutex
	owners map[types.UID]*created
}

type created struct {
	purposes map[types.UID]string // by the dependent's UID
	pending  int
}

// Begin announces the creation of a dependent. The caller calls the returned function when the API server has answered,
// with the dependent, or with nil if there is none.
func (c *Creations) Begin(owner types.UID, purpose string) (end func(dependent client.Object)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(owner).pending++
	return func(dependent client.Object) {
		c.mu.Lock()
		defer c.mu.Unlock()
		entry := c.of(owner)
		entry.pending--
		if dependent != nil {
			entry.purposes[dependent.GetUID()] = purpose
		}
	}
}

func (c *Creations) of(owner types.UID) *created {
	if c.owners == nil {
		c.owners = map[types.UID]*created{}
	}
	if c.owners[owner] == nil {
		c.owners[owner] = &created{purposes: map[types.UID]string{}}
	}
	return c.owners[owner]
}

// Of returns the purposes of the owner's dependents by UID, and whether one is being created just now.
func (c *Creations) Of(owner types.UID) (purposes map[types.UID]string, pending bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry, ok := c.owners[owner]
	if !ok {
		return nil, false
	}
	purposes = make(map[types.UID]string, len(entry.purposes))
	for uid, purpose := range entry.purposes {
		purposes[uid] = purpose
	}
	return purposes, entry.pending > 0
}

// Forget drops an owner that does not exist any more.
func (c *Creations) Forget(owner types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if entry, ok := c.owners[owner]; ok && entry.pending == 0 {
		delete(c.owners, owner)
	}
}
