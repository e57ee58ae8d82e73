package frame

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/virtkit/virtkit/pkg/service/frame/written"
)

// Writes writes objects of any kind and remembers the versions that the API server answered: while the cache shows an
// older one, Stale reports it. A patch fails with a conflict when somebody else has written the object since it was
// read, except one by PatchAs. Several goroutines may use it.
type Writes struct {
	client     client.Client
	logs       sync.Map // reflect.Type → *written.Log
	deleted    written.Deletions
	released   written.Releases
	dependents written.Dependents
}

// NewWrites makes the writes of one reconciler.
func NewWrites(to client.Client) *Writes { return &Writes{client: to} }

func (w *Writes) log(object client.Object) *written.Log {
	kind := reflect.TypeOf(object)
	log, ok := w.logs.Load(kind)
	if !ok {
		log, _ = w.logs.LoadOrStore(kind, &written.Log{})
	}
	return log.(*written.Log)
}

// note records the API server's answer to a write.
func (w *Writes) note(object client.Object) { w.log(object).Note(object) }

// Stale reports whether an object from the cache is older than its last write.
func (w *Writes) Stale(object client.Object) bool {
	return w.log(object).Stale(object) || w.released.Stale(object)
}

// Forget drops what is remembered of an object that no longer exists; any object of its kind names the kind. A frame
// does so for its own objects.
func (w *Writes) Forget(kind client.Object, key types.NamespacedName) { w.log(kind).Forget(key) }

func (w *Writes) forget(kind client.Object, key types.NamespacedName) {
	w.Forget(kind, key)
	w.released.Forget(key)
	w.dependents.Forget(key)
}

// Create makes an object.
func (w *Writes) Create(ctx context.Context, object client.Object) error {
	if err := w.client.Create(ctx, object); err != nil {
		return err
	}
	w.note(object)
	return nil
}

// Patch writes all but the status of an object, as it differs from before.
func (w *Writes) Patch(ctx context.Context, before, after client.Object) error {
	return w.PatchAs(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// Change calls change, which changes the object, and patches what it changed.
func (w *Writes) Change(ctx context.Context, object client.Object, change func()) error {
	before := object.DeepCopyObject().(client.Object)
	change()
	return w.Patch(ctx, before, object)
}

// PatchAs sends a patch of all but the status of an object. The patch itself names what must not have changed
// meanwhile, if anything. Afterwards the object is as the API server answered.
func (w *Writes) PatchAs(ctx context.Context, object client.Object, patch client.Patch) error {
	if err := w.client.Patch(ctx, object, patch); err != nil {
		return err
	}
	w.note(object)
	return nil
}

// PatchStatusAs does what PatchAs does, for the status.
func (w *Writes) PatchStatusAs(ctx context.Context, object client.Object, patch client.Patch) error {
	if err := w.client.Status().Patch(ctx, object, patch); err != nil {
		return err
	}
	w.note(object)
	return nil
}

// PatchStatus sets status, the object's status or a part of it, to want, and writes it if that changes anything.
func PatchStatus[T any](ctx context.Context, w *Writes, object client.Object, status *T, want T) error {
	if equality.Semantic.DeepEqual(*status, want) {
		return nil
	}
	before := object.DeepCopyObject().(client.Object)
	*status = want
	err := w.PatchStatusAs(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	return nil
}

// PatchStatusRecorded patches a status as PatchStatus does, and records that a state began or ended with it, as
// RecordChange does.
func PatchStatusRecorded[T any](
	ctx context.Context, w *Writes, recorder record.EventRecorder, object client.Object, status *T, want T,
	holds func(*T) bool, events [2]Event,
) error {
	was, is := holds(status), holds(&want)
	if err := PatchStatus(ctx, w, object, status, want); err != nil {
		return err
	}
	RecordChange(recorder, object, was, is, events)
	return nil
}

// RemoveFinalizer takes a finalizer from an object, which may end it. There is nothing to do when it has none.
func (w *Writes) RemoveFinalizer(ctx context.Context, object client.Object, finalizer string) error {
	before := object.DeepCopyObject().(client.Object)
	if !controllerutil.RemoveFinalizer(object, finalizer) {
		return nil
	}
	if err := w.Patch(ctx, before, object); err != nil {
		return fmt.Errorf("take the finalizer away: %w", err)
	}
	w.released.Note(before)
	return nil
}

// Delete deletes an object once, however long the cache shows it. It reports whether it was there: not when it is gone,
// when another has its name, or when it was deleted before.
func (w *Writes) Delete(
	ctx context.Context, object client.Object, options ...client.DeleteOption,
) (there bool, err error) {
	if w.Deleted(object) {
		return false, nil
	}
	uid := object.GetUID()
	err = w.client.Delete(ctx, object, append(options, client.Preconditions{UID: &uid})...)
	gone := apierrors.IsNotFound(err) || apierrors.IsConflict(err)
	if err != nil && !gone {
		return false, err
	}
	w.deleted.Note(object)
	return !gone, nil
}

// Deleted reports whether an object from the cache is older than its deletion.
func (w *Writes) Deleted(object client.Object) bool { return w.deleted.Stale(object) }
