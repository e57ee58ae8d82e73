package frame

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/service/frame/written"
)

// CreateCounted does what Create does, for a dependent of owner that is counted; see CountsStale.
func (w *Writes) CreateCounted(ctx context.Context, owner, dependent client.Object, now time.Time) error {
	if err := w.Create(ctx, dependent); err != nil {
		return err
	}
	w.dependents.Made(client.ObjectKeyFromObject(owner), dependent, now)
	return nil
}

// CountsStale reports whether the cache, which has the dependents that are shown, does not have one yet that owner has
// made by CreateCounted. live reads past the cache what was made a while ago and may be gone; kind is any object of the
// dependents' kind.
func (w *Writes) CountsStale(
	ctx context.Context, live client.Reader, owner client.Object, shown map[types.UID]bool, now time.Time,
	kind client.Object,
) (bool, error) {
	return w.dependents.Stale(client.ObjectKeyFromObject(owner), shown, now, func(made written.Made) (bool, error) {
		found := kind.DeepCopyObject().(client.Object)
		err := live.Get(ctx, made.Key, found)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("get %T %s: %w", kind, made.Key.Name, err)
		}
		return err == nil && found.GetUID() == made.UID && metav1.IsControlledBy(found, owner), nil
	})
}

// Event is the reason and the message of an event.
type Event struct{ Reason, Message string }

// RecordChange records the first event when a state began, the second when it ended, and none when nothing changed.
func RecordChange(recorder record.EventRecorder, object client.Object, was, is bool, events [2]Event) {
	if was == is {
		return
	}
	event := events[0]
	if was {
		event = events[1]
	}
	recorder.Event(object, corev1.EventTypeNormal, event.Reason, event.Message)
}
