package snapshotcontroller

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// refuser refuses to unfreeze with an error.
type refuser struct{ err error }

func (f refuser) Freeze(context.Context, types.NamespacedName, time.Duration) (snapshots.Quiesced, error) {
	return "", f.err
}

func (f refuser) Unfreeze(context.Context, types.NamespacedName) error { return f.err }

// A virt-handler that was just started finds no guest, although there is one, which is frozen.
func TestThawOfAGuestThatIsNotFound(t *testing.T) {
	resource := schema.GroupResource{Resource: "virtualmachineinstances"}
	open := Window{Until: now.Add(time.Minute), Quiesced: snapshots.QuiescedAgent}
	for _, err := range []error{
		apierrors.NewNotFound(resource, "demo"), apierrors.NewConflict(resource, "demo", context.Canceled),
	} {
		r := &Contents{Freezer: refuser{err}, Now: func() time.Time { return now }}
		for guest, again := range map[Guest]bool{
			NoGuest: false, GuestWaiting: false, GuestChanging: false, GuestRunning: true,
		} {
			view := viewOf(content(windowed(open)), guest)
			if got := r.thaw(t.Context(), view, &ContentStep{Window: &open}); (got != nil) != again {
				t.Errorf("%v, guest %v: %v", err, guest, got)
			}
		}
		over := open
		over.Until = now
		if got := r.thaw(t.Context(), viewOf(content(windowed(over)), GuestRunning),
			&ContentStep{Window: &over}); got != nil {
			t.Errorf("its launcher has let it go by now: %v", got)
		}
	}
}
