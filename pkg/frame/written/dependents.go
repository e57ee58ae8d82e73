package written

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Dependents remembers for each object that is reconciled which of its many dependents were made and deleted, until the
// cache shows it, so that a reconciler that counts them counts right. The zero value is empty; it may be used by
// several goroutines.
type Dependents struct {
	mu  sync.Mutex
	all map[types.NamespacedName]*expected
}

type expected struct {
	made    map[types.UID]Made
	deleted map[types.UID]bool
}

// Made is a dependent that was made and that the cache may not show yet.
type Made struct {
	Key types.NamespacedName
	UID types.UID
	At  time.Time
}

// Made remembers that a dependent of key was made.
func (d *Dependents) Made(key types.NamespacedName, dependent client.Object, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of(key).
		made[dependent.GetUID()] = Made{Key: client.ObjectKeyFromObject(dependent), UID: dependent.GetUID(), At: at}
}

// Deleted remembers that a dependent of key was deleted.
func (d *Dependents) Deleted(key types.NamespacedName, dependent client.Object) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of(key).deleted[dependent.GetUID()] = true
}

func (d *Dependents) of(key types.NamespacedName) *expected {
	if d.all == nil {
		d.all = map[types.NamespacedName]*expected{}
	}
	if d.all[key] == nil {
		d.all[key] = &expected{made: map[types.UID]Made{}, deleted: map[types.UID]bool{}}
	}
	return d.all[key]
}

// Settle compares with what the cache shows: deleting says of each dependent, by UID, whether it is being deleted.
// unseen are those that were made and are not shown, the oldest first; stale says that one is shown as if it had not
// been deleted. What the cache shows as it should be is forgotten.
func (d *Dependents) Settle(key types.NamespacedName, deleting map[types.UID]bool) (unseen []Made, stale bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	expected, ok := d.all[key]
	if !ok {
		return nil, false
	}
	maps.DeleteFunc(expected.made, func(uid types.UID, _ Made) bool {
		_, seen := deleting[uid]
		return seen
	})
	maps.DeleteFunc(expected.deleted, func(uid types.UID, _ bool) bool {
		going, there := deleting[uid]
		return !there || going
	})
	if len(expected.made)+len(expected.deleted) == 0 {
		delete(d.all, key)
		return nil, false
	}
	unseen = slices.SortedFunc(maps.Values(expected.made), func(a, b Made) int { return a.At.Compare(b.At) })
	return unseen, len(expected.deleted) > 0
}

// Gone reports whether a dependent was deleted, which the cache has not shown yet.
func (d *Dependents) Gone(key types.NamespacedName, dependent client.Object) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	expected, ok := d.all[key]
	return ok && expected.deleted[dependent.GetUID()]
}

// forgetful is when a dependent that was made and that the cache does not show is asked for: it may be gone already.
const forgetful = 5 * time.Second

// Stale reports whether the cache does not show yet what was made and deleted last, as Settle finds it. there reports
// whether a dependent that was made a while ago still exists.
func (d *Dependents) Stale(
	key types.NamespacedName, deleting map[types.UID]bool, now time.Time, there func(Made) (bool, error),
) (bool, error) {
	unseen, stale := d.Settle(key, deleting)
	for _, made := range unseen {
		if now.Sub(made.At) < forgetful {
			stale = true
			continue
		}
		found, err := there(made)
		switch {
		case err != nil:
			return false, err
		case found:
			stale = true
		default:
			d.drop(key, made.UID)
		}
	}
	return stale, nil
}

// drop forgets a dependent that was made and is gone already, which no cache will show.
func (d *Dependents) drop(key types.NamespacedName, uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if expected, ok := d.all[key]; ok {
		delete(expected.made, uid)
	}
}

// Forget drops an object that does not exist any more.
func (d *Dependents) Forget(key types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.all, key)
}
