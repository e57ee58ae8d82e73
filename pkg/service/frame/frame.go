// Package frame runs the reconcilers of virt-controller and virt-handler. A reconciler is three functions:
//
//	Look   reads the objects, from the cache and where that may be stale from the API server
//	Next   decides on a step; it is pure, and tested without an API server
//	Apply  writes what the step says
//
// Look may ask Next, or a part of it, what more there is to read for the step. What a reconciler remembers from one
// pass to the next, such as since when it waits, is in fields of its own; Look puts what Next needs of that into View.
//
// What an answer of the API server changes of the rest of the step is a pure function, too, in a package's answers.go.
//
// Frame calls them: it gets the object, waits for a cache that does not show the last write yet, looks again after
// a conflict, and forgets an object that is gone. Writes are a reconciler's writes, all of which it remembers.
//
// controller-runtime counts reconciliations by result, and puts the controller and the object into every log line.
package frame

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// CatchUp is the time to wait for a stale cache. Its event mostly comes first, so a shorter time would gain little.
const CatchUp = time.Second

// WaitError is the error of a Look that has nothing to decide on now: look again after that time, or only at an event
// if it is zero.
type WaitError time.Duration

// ErrStale is for a cache that does not show a write yet, ErrNothing for an object that is not the reconciler's.
const (
	ErrStale   = WaitError(CatchUp)
	ErrNothing = WaitError(0)
)

func (w WaitError) Error() string { return "nothing can be decided for " + time.Duration(w).String() }

// Requeue is the part of every step that says when to look again.
type Requeue struct {
	// RequeueAfter is the delay before the next look when no event comes; zero means never.
	RequeueAfter time.Duration
}

func (r Requeue) again() time.Duration { return r.RequeueAfter }

// Step is a struct that has Requeue in it.
type Step interface{ again() time.Duration }

// Frame reconciles objects of type O, a pointer. V holds what Look read, S what Apply writes.
type Frame[O client.Object, V any, S Step] struct {
	Writes *Writes
	// Look may change its object, which is a copy. Its errors are handled as Apply's are, but for WaitError.
	Look func(context.Context, O) (V, error)
	Next func(V) S
	// Apply carries the step out, and may put the results into it.
	Apply func(context.Context, V, *S) error
	// Gone, which may be nil, is called for an object that does not exist any more.
	Gone func(context.Context, types.NamespacedName) error
}

// Reconcile takes one object a step further.
func (f *Frame[O, V, S]) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	again, err := f.reconcile(ctx, request.NamespacedName)
	var wait WaitError
	switch {
	case errors.As(err, &wait):
		again = time.Duration(wait)
	case passes(err):
		// Its watch event will follow.
		ctrl.LoggerFrom(ctx).V(4).Info("another wrote what was to be written", "reason", err.Error())
		again = CatchUp
	case err != nil:
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

func (f *Frame[O, V, S]) reconcile(ctx context.Context, key types.NamespacedName) (again time.Duration, err error) {
	object := reflect.New(reflect.TypeFor[O]().Elem()).Interface().(O)
	switch err := f.Writes.client.Get(ctx, key, object); {
	case apierrors.IsNotFound(err):
		f.Writes.forget(object, key)
		if f.Gone == nil {
			return 0, nil
		}
		return 0, f.Gone(ctx, key)
	case err != nil:
		return 0, fmt.Errorf("get what is to be reconciled: %w", err)
	}
	if f.Writes.Stale(object) {
		return 0, ErrStale
	}
	view, err := f.Look(ctx, object)
	if err != nil {
		return 0, err
	}
	step := f.Next(view)
	err = f.Apply(ctx, view, &step)
	return step.again(), err
}

// passes reports whether an error says only that the cache is stale: what was to be written was written by another
// meanwhile, or is gone. Of errors that are joined each must say so.
func passes(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			if !passes(err) {
				return false
			}
		}
		return true
	}
	if inner := errors.Unwrap(err); inner != nil {
		return passes(inner)
	}
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err)
}
