package wait

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/store"
)

// Progress is how an object that stands for a piece of work says how far that is: a snapshot, a restore, a clone.
type Progress[O metav1.Object] struct {
	// Stage says in a few words how far it is.
	Stage func(O) string
	// Done reports whether it has succeeded; that it failed is an error.
	Done func(O) (bool, error)
	// Report is called with each stage.
	Report func(stage string)
}

// Wait waits until the object is done, and returns it as it then is. kind is what errors call it. A deadline of ctx is
// an action.ErrTimeout with the last stage, and an object that does not exist, or goes, an action.ErrNotFound.
func (p Progress[O]) Wait(ctx context.Context, source store.Source, kind, namespace, name string) (O, error) {
	stage := ""
	out, err := Object(ctx, source, name, func(object O) (bool, error) {
		stage = p.Stage(object)
		p.Report(stage)
		return p.Done(object)
	})
	switch {
	case errors.Is(err, action.ErrTimeout):
		err = fmt.Errorf("%w waiting for %s %s/%s: %s", action.ErrTimeout, kind, namespace, name,
			cmp.Or(stage, "the cluster gave no answer"))
	case errors.Is(err, action.ErrNotFound):
		err = fmt.Errorf("%s %s/%s %w: it was deleted meanwhile", kind, namespace, name, action.ErrNotFound)
	}
	return out, err
}
