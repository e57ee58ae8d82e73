// Package written lets a reconciler read its own writes. A cache lags behind the API server: a reconciler that acts on
// an object from before its own last write mostly repeats that write and gets a conflict. Waiting for the event costs
// nothing: it is on its way.
package written

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Log remembers the version of each object of one kind after its last write. The zero Log is empty;
// it may be used by several goroutines.
type Log struct {
	versions recent[types.NamespacedName, string]
}

// Note remembers an object as the API server answered to a write.
func (l *Log) Note(object client.Object) {
	l.versions.put(client.ObjectKeyFromObject(object), object.GetResourceVersion())
}

// Stale reports whether an object from the cache is older than the last write. Once it is not, the
// write is forgotten.
func (l *Log) Stale(object client.Object) bool {
	key := client.ObjectKeyFromObject(object)
	version, ok := l.versions.get(key)
	if !ok {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), version)
	if err == nil && order < 0 {
		return true
	}
	l.versions.dropIf(key, version)
	return false
}

// Forget drops an object that does not exist any more.
func (l *Log) Forget(key types.NamespacedName) { l.versions.drop(key) }

// Deletions remembers which objects were deleted, until the cache shows it. The zero value is empty; it may be used by
// several goroutines.
type Deletions struct {
	uids recent[types.UID, bool]
}

// Note remembers that an object was deleted.
func (d *Deletions) Note(object client.Object) { d.uids.put(object.GetUID(), true) }

// Stale reports whether an object from the cache is older than its deletion.
func (d *Deletions) Stale(object client.Object) bool {
	if object.GetDeletionTimestamp() != nil {
		d.uids.drop(object.GetUID())
	}
	_, deleted := d.uids.get(object.GetUID())
	return deleted
}

// Releases remembers for each object the version from which its last finalizer was taken. Such an
// object is gone, which the API server's answer does not show by a newer version. The zero value is
// empty; it may be used by several goroutines.
type Releases struct {
	versions recent[types.NamespacedName, release]
}

type release struct {
	uid     types.UID
	version string
}

// Note remembers an object as it was read before its finalizer was taken.
func (r *Releases) Note(object client.Object) {
	r.versions.put(client.ObjectKeyFromObject(object), release{object.GetUID(), object.GetResourceVersion()})
}

// Stale reports whether an object from the cache is the one that was released.
func (r *Releases) Stale(object client.Object) bool {
	noted, ok := r.versions.get(client.ObjectKeyFromObject(object))
	return ok && noted == release{object.GetUID(), object.GetResourceVersion()}
}

// Forget drops an object that does not exist any more.
func (r *Releases) Forget(key types.NamespacedName) { r.versions.drop(key) }
