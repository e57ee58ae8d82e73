package written

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Dependents remembers for each object that is reconciled which of its many dependents were made, until the cache shows
// them, so that a reconciler that counts them counts right. The zero value is empty; it may be used by several
// goroutines.
type Dependents struct {
	mu   sync.Mutex
	made map[types.NamespacedName]map[types.UID]Made
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
	if d.made == nil {
		d.made = map[types.NamespacedName]map[types.UID]Made{}
	}
	if d.made[key] == nil {
		d.made[key] = map[types.UID]Made{}
	}
	uid := dependent.GetUID()
	d.made[key][uid] = Made{Key: client.ObjectKeyFromObject(dependent), UID: uid, At: at}
}

// unseen returns the dependents that were made and are not among shown, what the cache has; the oldest first. Those
// that it shows are forgotten.
func (d *Dependents) unseen(key types.NamespacedName, shown map[types.UID]bool) []Made {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.made[key], func(uid types.UID, _ Made) bool { return shown[uid] })
	if len(d.made[key]) == 0 {
		delete(d.made, key)
	}
	return slices.SortedFunc(maps.Values(d.made[key]), func(a, b Made) int { return a.At.Compare(b.At) })
}

// forgetful is the age from which a dependent that was made and that the cache does not show is asked for: it may be
// gone already.
const forgetful = 5 * time.Second

// Stale reports whether the cache, which has the dependents that are shown, does not have one yet that was made. there
// reports whether a dependent that was made a while ago still exists.
func (d *Dependents) Stale(
	key types.NamespacedName, shown map[types.UID]bool, now time.Time, there func(Made) (bool, error),
) (stale bool, err error) {
	for _, made := range d.unseen(key, shown) {
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
	delete(d.made[key], uid)
}

// Forget drops an object that does not exist any more.
func (d *Dependents) Forget(key types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.made, key)
}
