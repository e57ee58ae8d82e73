// Package written lets a reconciler read its own writes. A cache trails the API server: a reconciler
// that acts on an object from before its own last write mostly repeats that write and gets a conflict.
// It costs nothing to wait for the event instead, which is on its way.
package written

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Log remembers the version of each object of one kind after its last write. The zero Log is empty;
// it may be used by several goroutines.
type Log struct {
	versions sync.Map // types.NamespacedName → string
}

// Note remembers an object as the API server answered to a write.
func (l *Log) Note(object client.Object) {
	l.versions.Store(client.ObjectKeyFromObject(object), object.GetResourceVersion())
}

// Behind reports whether an object from the cache is older than the last write. Once it is not, the
// write is forgotten.
func (l *Log) Behind(object client.Object) bool {
	key := client.ObjectKeyFromObject(object)
	version, ok := l.versions.Load(key)
	if !ok {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), version.(string))
	if err == nil && order < 0 {
		return true
	}
	l.versions.CompareAndDelete(key, version)
	return false
}

// Forget drops an object that does not exist any more.
func (l *Log) Forget(key types.NamespacedName) {
	l.versions.Delete(key)
}

// Deletions remembers for each object that is reconciled the dependent that was deleted last. The
// zero value is empty; it may be used by several goroutines.
type Deletions struct {
	uids sync.Map // types.NamespacedName → types.UID
}

// Note remembers that a dependent of key was deleted.
func (d *Deletions) Note(key types.NamespacedName, dependent client.Object) {
	d.uids.Store(key, dependent.GetUID())
}

// Behind reports whether a dependent from the cache is older than its deletion.
func (d *Deletions) Behind(key types.NamespacedName, dependent client.Object) bool {
	uid, ok := d.uids.Load(key)
	return ok && uid == dependent.GetUID() && dependent.GetDeletionTimestamp() == nil
}

// Forget drops an object that does not exist any more.
func (d *Deletions) Forget(key types.NamespacedName) {
	d.uids.Delete(key)
}
