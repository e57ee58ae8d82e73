// Package store keeps small rows of what a cluster has, fed by watches: what tables show of machines, nodes, migrations
// and events, never the objects themselves. The dashboard and the list commands read them.
//
//	Source ── list, watch ──► feed ── row of each object ──► Table ── Rows ──► whoever draws
//	                                                           └─ changed: something is to be read anew
//
// A row is never changed after it was made, so readers need no lock. Objects become rows as they arrive, before
// anything keeps them: ten thousand machines cost some megabytes. A Table says how fresh it is: when the connection
// went, and why.
package store

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// Source is where the objects of one kind come from.
type Source struct {
	List  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	Watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
	// Pulse notices that the server is silent; nil does not.
	Pulse *Pulse
}

// Key is an object's namespace and name.
type Key = types.NamespacedName

// State is how much a table can be believed.
type State struct {
	// Synced is whether the table has been complete once.
	Synced bool
	// Since is when the connection was lost; zero while there is one.
	Since time.Time
	// Err is why it was lost, or why it cannot be made.
	Err error
}

// Stale reports whether the rows are of the past.
func (s State) Stale() bool { return !s.Since.IsZero() }

// Table has the rows of one kind. Its methods may be called by several goroutines.
type Table[R any] struct {
	mu      sync.Mutex
	rows    map[Key]*R
	state   State
	pulse   *Pulse // of the server that the rows are of
	changed func()
	// touched hears the keys whose rows changed, with mu held; nil keys stand for all.
	touched func(keys []Key)
}

// NewTable makes an empty table; changed, which must not block, is called after each change of rows or state.
func NewTable[R any](changed func()) *Table[R] {
	return &Table[R]{rows: map[Key]*R{}, changed: changed, touched: func([]Key) {}}
}

// Rows returns all rows, in no order. The slice is the caller's; the rows are not to be changed.
func (t *Table[R]) Rows() []*R {
	t.mu.Lock()
	defer t.mu.Unlock()
	rows := make([]*R, 0, len(t.rows))
	for _, r := range t.rows {
		rows = append(rows, r)
	}
	return rows
}

// Get returns the row of one object, or nil.
func (t *Table[R]) Get(key Key) *R {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rows[key]
}

// State returns how much the table can be believed.
func (t *Table[R]) State() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pulse.over(t.state)
}

// follow makes the table stale while the server that p watches is silent.
func (t *Table[R]) follow(p *Pulse) {
	t.mu.Lock()
	t.pulse = p
	t.mu.Unlock()
	if p.State().Stale() {
		t.changed()
	}
}

// set keeps a row, or with nil forgets it.
func (t *Table[R]) set(key Key, row *R) {
	t.mu.Lock()
	if row == nil {
		delete(t.rows, key)
	} else {
		t.rows[key] = row
	}
	t.touched([]Key{key})
	t.mu.Unlock()
	t.changed()
}

// Load takes rows at hand for all there are, as a feed's first list does.
func (t *Table[R]) Load(rows map[Key]*R) { t.replace(rows) }

// replace keeps these rows and no others.
func (t *Table[R]) replace(rows map[Key]*R) {
	t.mu.Lock()
	t.rows = rows
	t.state.Synced = true
	t.touched(nil)
	t.mu.Unlock()
	t.changed()
}

// connected records that there is a connection.
func (t *Table[R]) connected() {
	t.mu.Lock()
	was := t.state
	t.state.Since, t.state.Err = time.Time{}, nil
	t.mu.Unlock()
	if was.Stale() {
		t.changed()
	}
}

// Lost records that there is no connection since now, and why, as a feed does; the first of several losses counts. A
// refusal of the server's before it does not count, since there was a connection then.
func (t *Table[R]) Lost(now time.Time, err error) {
	t.mu.Lock()
	if before := t.state.Err; t.state.Since.IsZero() || before != nil && isAnswer(before) && !isAnswer(err) {
		t.state.Since = now
	}
	t.state.Err = err
	t.mu.Unlock()
	t.changed()
}
