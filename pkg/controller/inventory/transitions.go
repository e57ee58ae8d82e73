package inventory

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/service/metrics"
)

// Transitions measures how long VMIs and migrations take, as their events arrive: the API's own times have no fractions
// of a second, in which most of a start passes here.
type Transitions struct {
	now func() time.Time

	phase, fromCreation, fromDeletion, migration *prometheus.HistogramVec

	mu   sync.Mutex
	seen map[types.UID]*passage
}

// passage holds what was seen of one object.
type passage struct {
	phase string
	// since is when it entered its phase, zero when that was before we looked; created and deleted likewise.
	since, created, deleted time.Time
}

// NewTransitions registers the histograms.
func NewTransitions(registry *prometheus.Registry, now func() time.Time) *Transitions {
	t := &Transitions{
		now: now, phase: metrics.VMIPhaseTransition.HistogramVec(),
		fromCreation: metrics.VMIPhaseFromCreation.HistogramVec(),
		fromDeletion: metrics.VMIPhaseFromDeletion.HistogramVec(), migration: metrics.MigrationPhases.HistogramVec(),
		seen: map[types.UID]*passage{},
	}
	registry.MustRegister(t.phase, t.fromCreation, t.fromDeletion, t.migration)
	return t
}

// newest is the greatest age, by the API server's clock, of an object that was created just now: its time is cut to the
// second.
const newest = 2 * time.Second

// saw records an object and returns what was known of it before, and now.
func (t *Transitions) saw(object client.Object, phase string, initial bool) (before, after passage, changed bool) {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.seen[object.GetUID()]
	if p == nil {
		p = &passage{created: object.GetCreationTimestamp().Time, phase: phase}
		if !initial && now.Sub(p.created) < newest {
			p.created, p.since = now, now
		}
		t.seen[object.GetUID()] = p
		before = passage{created: p.created, since: p.since}
		if deleted := object.GetDeletionTimestamp(); deleted != nil {
			p.deleted = deleted.Time
		}
		return before, *p, !initial && phase != ""
	}
	before = *p
	if object.GetDeletionTimestamp() != nil && p.deleted.IsZero() {
		p.deleted = now
	}
	if p.phase == phase {
		return before, *p, false
	}
	p.phase, p.since = phase, now
	return before, *p, true
}

func (t *Transitions) gone(object any) {
	if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	if o, ok := object.(client.Object); ok {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.seen, o.GetUID())
	}
}

func (t *Transitions) instances() toolscache.ResourceEventHandler {
	look := func(object any, initial bool) {
		vmi, ok := object.(*v1.VirtualMachineInstance)
		if !ok {
			return
		}
		before, after, changed := t.saw(vmi, string(vmi.Status.Phase), initial)
		if !changed {
			return
		}
		now := after.since
		if now.IsZero() {
			now = t.now()
		}
		if !before.since.IsZero() && before.phase != "" {
			t.phase.WithLabelValues(after.phase, before.phase).Observe(now.Sub(before.since).Seconds())
		}
		t.fromCreation.WithLabelValues(after.phase).Observe(max(0, now.Sub(after.created).Seconds()))
		if vmi.IsFinal() && !after.deleted.IsZero() {
			t.fromDeletion.WithLabelValues(after.phase).Observe(max(0, now.Sub(after.deleted).Seconds()))
		}
	}
	return handlers(look, t.gone)
}

func (t *Transitions) migrations() toolscache.ResourceEventHandler {
	look := func(object any, initial bool) {
		migration, ok := object.(*v1.VirtualMachineInstanceMigration)
		if !ok {
			return
		}
		if _, after, changed := t.saw(migration, string(migration.Status.Phase), initial); changed {
			t.migration.WithLabelValues(after.phase).Observe(max(0, t.now().Sub(after.created).Seconds()))
		}
	}
	return handlers(look, t.gone)
}

func handlers(look func(object any, initial bool), gone func(any)) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    look,
		UpdateFunc: func(_, object any) { look(object, false) },
		DeleteFunc: gone,
	}
}
