package written

import "sync"

// most is the least number of writes that are remembered. No cache is further behind; a write that is forgotten before
// the cache shows it costs a conflict.
const most = 4096

// recent is a map that forgets its oldest entries, since most of what is written is never asked for. The zero value is
// empty; it may be used by several goroutines.
type recent[K, V comparable] struct {
	mu         sync.Mutex
	young, old map[K]V
}

func (r *recent[K, V]) put(key K, value V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.young == nil || len(r.young) >= most {
		r.young, r.old = map[K]V{}, r.young
	}
	r.young[key] = value
}

func (r *recent[K, V]) get(key K) (value V, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.find(key)
}

func (r *recent[K, V]) find(key K) (value V, ok bool) {
	if value, ok = r.young[key]; !ok {
		value, ok = r.old[key]
	}
	return value, ok
}

func (r *recent[K, V]) drop(key K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.young, key)
	delete(r.old, key)
}

// dropIf drops an entry that has not been put anew meanwhile.
func (r *recent[K, V]) dropIf(key K, value V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now, ok := r.find(key); ok && now == value {
		delete(r.young, key)
		delete(r.old, key)
	}
}
