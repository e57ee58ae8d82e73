package guestfscontroller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/frame"
)

// Reconciler reads pods from Client's cache, and deletes them.
type Reconciler struct {
	Client client.Client
	Now    func() time.Time

	writes *frame.Writes
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.writes = frame.NewWrites(r.Client)
	return ctrl.NewControllerManagedBy(mgr).
		Named("guestfs").
		For(&corev1.Pod{}, builder.WithPredicates(predicate.NewPredicateFuncs(session))).
		Complete(&frame.Frame[*corev1.Pod, View, Step]{
			Writes: r.writes, Look: r.look, Next: Next, Apply: r.apply,
		})
}

// session reports the pod of a session.
func session(object client.Object) bool {
	return object.GetLabels()[names.LabelComponent] == names.VirtGuestfs
}

func (r *Reconciler) look(_ context.Context, pod *corev1.Pod) (View, error) {
	if !session(pod) {
		return View{}, frame.ErrNothing
	}
	return View{Pod: pod, Now: r.Now()}, nil
}

func (r *Reconciler) apply(ctx context.Context, view View, step *Step) error {
	if !step.Delete {
		return nil
	}
	if _, err := r.writes.Delete(ctx, view.Pod); err != nil {
		return fmt.Errorf("delete pod %s: %w", view.Pod.Name, err)
	}
	return nil
}
