package wait

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/outage"
	"github.com/virtkit/virtkit/pkg/client/store"
)

// Object follows one object of a source until met holds, and returns it as it then is. An object that does not exist,
// or goes, is an action.ErrNotFound, and a deadline of ctx an action.ErrTimeout; both come with the object as it was
// last seen. An error of met ends the wait. A lost connection is made again for as long as ctx lasts.
func Object[O metav1.Object](
	ctx context.Context, source store.Source, name string, met func(O) (bool, error),
) (O, error) {
	f := &follower[O]{source: source, name: name, met: met, outage: outage.Follow(ctx)}
	defer f.outage.End()
	for {
		done, err := f.round(ctx)
		switch {
		case done || err != nil && ctx.Err() == nil:
			return f.last, err
		case ctx.Err() != nil || action.Sleep(ctx, retryAfter) != nil:
			return f.last, f.expired(ctx)
		}
	}
}

type follower[O metav1.Object] struct {
	source store.Source
	name   string
	met    func(O) (bool, error)
	outage *outage.Follower

	last O
	seen bool
}

func (f *follower[O]) expired(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return fmt.Errorf("%w waiting for %s", action.ErrTimeout, f.name)
}

// round lists, then watches until the watch ends. Its error is final.
func (f *follower[O]) round(ctx context.Context) (bool, error) {
	opts := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, f.name).String()}
	f.outage.Asks()
	list, err := f.source.List(ctx, opts)
	if err != nil {
		if !f.seen || !client.Passing(err) {
			return false, err
		}
		f.outage.Lost(ctx, err)
		return false, nil
	}
	f.outage.Answered()
	items, err := meta.ExtractList(list)
	if err != nil {
		return false, err
	}
	if len(items) == 0 {
		return false, fmt.Errorf("%q %w", f.name, action.ErrNotFound)
	}
	if met, err := f.check(items[0]); met || err != nil {
		return met, err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return false, err
	}
	opts.ResourceVersion = accessor.GetResourceVersion()
	changes, err := f.source.Watch(ctx, opts)
	if err != nil {
		return false, nil // it is tried again
	}
	defer changes.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, nil
		case event, open := <-changes.ResultChan():
			switch {
			case !open || event.Type == watch.Error:
				return false, nil
			case event.Type == watch.Deleted:
				return false, fmt.Errorf("%q %w: it was deleted meanwhile", f.name, action.ErrNotFound)
			case event.Type == watch.Bookmark:
				continue
			}
			if met, err := f.check(event.Object); met || err != nil {
				return met, err
			}
		}
	}
}

func (f *follower[O]) check(object any) (bool, error) {
	o, ok := object.(O)
	if !ok {
		return false, fmt.Errorf("the server sent a %T", object)
	}
	f.last, f.seen = o, true
	return f.met(o)
}
