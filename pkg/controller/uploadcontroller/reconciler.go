package uploadcontroller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// podsByClaim indexes upload pods by the UID of the claim that controls them.
const podsByClaim = "virtkit.upload-claim"

// Reconciler reads claims and pods from Client's cache, and writes upload pods, and the annotations and labels of
// claims.
type Reconciler struct {
	Client client.Client
	Config func() config.Config
	// Image and ImagePullPolicy are virt-launcher's.
	Image           string
	ImagePullPolicy corev1.PullPolicy
	Now             func() time.Time

	writes *frame.Writes
}

// SetupWithManager registers the reconciler and its index.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	r.writes = frame.NewWrites(r.Client)
	err := frame.Index(ctx, mgr.GetFieldIndexer(), &corev1.Pod{}, podsByClaim, "upload pods by claim",
		func(pod *corev1.Pod) []string {
			owner := metav1.GetControllerOfNoCopy(pod)
			if pod.Labels[names.LabelComponent] != names.VirtUpload || owner == nil {
				return nil
			}
			return []string{string(owner.UID)}
		})
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("upload").
		For(&corev1.PersistentVolumeClaim{}).
		Owns(&corev1.Pod{}).
		Complete(&frame.Frame[*corev1.PersistentVolumeClaim, View, Step]{
			Writes: r.writes, Look: r.look, Next: Next, Apply: r.apply,
		})
}

// look gathers what Next wants to know.
func (r *Reconciler) look(ctx context.Context, claim *corev1.PersistentVolumeClaim) (View, error) {
	view := View{
		Claim: claim, Request: uploads.RequestOf(claim.Annotations), State: uploads.StateOf(claim.Annotations),
		Facts: Facts{Config: r.Config(), Image: r.Image, ImagePullPolicy: r.ImagePullPolicy}, Now: r.Now(),
	}
	if view.Request == nil && view.State == nil {
		return view, frame.ErrNothing // most claims
	}
	var pods corev1.PodList
	err := r.Client.List(ctx, &pods, client.InNamespace(claim.Namespace),
		client.MatchingFields{podsByClaim: string(claim.UID)})
	if err != nil {
		return view, fmt.Errorf("list upload pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		switch {
		case r.writes.Stale(pod) || r.writes.Deleted(pod) && pod.DeletionTimestamp == nil:
			return view, frame.ErrStale
		case view.Request != nil && pod.Name == uploads.PodName(claim.UID, view.Request.ID):
			view.Pod = pod
		default:
			view.Others = append(view.Others, pod)
		}
	}
	return view, nil
}

func (r *Reconciler) apply(ctx context.Context, view View, step *Step) error {
	for _, pod := range step.Delete {
		if _, err := r.writes.Delete(ctx, pod); err != nil {
			return fmt.Errorf("delete pod %s: %w", pod.Name, err)
		}
	}
	if step.Create != nil {
		if err := step.created(view, r.writes.Create(ctx, step.Create)); err != nil {
			return err
		}
	}
	switch {
	case step.End != nil:
		return r.writes.Change(ctx, view.Claim, func() {
			delete(view.Claim.Annotations, uploads.AnnotationRequest)
			metav1.SetMetaDataAnnotation(&view.Claim.ObjectMeta, uploads.AnnotationState, uploads.Encode(step.End))
			for key, value := range step.Labels {
				metav1.SetMetaDataLabel(&view.Claim.ObjectMeta, key, value)
			}
		})
	case step.Say != nil:
		return r.writes.Change(ctx, view.Claim, func() {
			metav1.SetMetaDataAnnotation(&view.Claim.ObjectMeta, uploads.AnnotationState, uploads.Encode(step.Say))
		})
	}
	return nil
}
