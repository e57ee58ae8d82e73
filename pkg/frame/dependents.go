package frame

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/frame/written"
)

// Owns reports whether a dependent that owner made still exists and is still owner's; written.Dependents.Stale asks it.
// live reads past the cache, and into is an empty object of the dependent's kind.
func Owns(
	ctx context.Context, live client.Reader, owner client.Object, made written.Made, into client.Object,
) (bool, error) {
	err := live.Get(ctx, made.Key, into)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("get %T %s: %w", into, made.Key.Name, err)
	}
	return err == nil && into.GetUID() == made.UID && metav1.IsControlledBy(into, owner), nil
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
