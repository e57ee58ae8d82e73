package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/virtkit/virtkit/pkg/client/action"
)

// deleteAll deletes the objects that are there and returns those.
func (i *Installer) deleteAll(
	ctx context.Context, objects []*unstructured.Unstructured, dryRun DryRun,
) ([]*unstructured.Unstructured, error) {
	var deleted []*unstructured.Unstructured
	for _, o := range objects {
		was, err := i.delete(ctx, o, dryRun)
		if err != nil {
			return deleted, fmt.Errorf("delete %s: %w", Name(o), err)
		}
		if was != nil {
			deleted = append(deleted, was)
		}
	}
	return deleted, nil
}

// removalOrder returns the objects in the reversed order of installation, except for those that rank first: a webhook
// or API service whose server is gone makes the API server refuse or stall other requests, and the workloads need the
// rest.
func removalOrder(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	ordered := slices.Clone(objects)
	slices.Reverse(ordered)
	slices.SortStableFunc(ordered, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	return ordered
}

func rank(o *unstructured.Unstructured) int {
	switch o.GetKind() {
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		return rankAdmission
	case "APIService":
		return rankService
	case "Deployment", "DaemonSet":
		return rankWorkload
	}
	return rankWorkload + 1
}

// admissions counts the webhook configurations, which lead the removal order.
func admissions(ordered []*unstructured.Unstructured) int {
	n := slices.IndexFunc(ordered, func(o *unstructured.Unstructured) bool { return rank(o) > rankAdmission })
	return max(n, 0)
}

// delete deletes an object, if it is there and ours, and returns it as it was, or nil.
func (i *Installer) delete(
	ctx context.Context, o *unstructured.Unstructured, dryRun DryRun,
) (*unstructured.Unstructured, error) {
	client, err := at(i.Client, o)
	if err != nil {
		return nil, err
	}
	now, err := client.Get(ctx, o.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if now.GetLabels()[partOfLabel] != partOf {
		return nil, nil
	}
	if dryRun == DryRunClient {
		return now, nil
	}
	background := metav1.DeletePropagationBackground
	uid := now.GetUID()
	options := metav1.DeleteOptions{
		PropagationPolicy: &background,
		Preconditions:     &metav1.Preconditions{UID: &uid},
	}
	if dryRun == DryRunServer {
		options.DryRun = []string{metav1.DryRunAll}
	}
	err = client.Delete(ctx, o.GetName(), options)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return now, nil
}

// waitGone waits until nothing of the objects is left; the namespace takes its pods' grace period.
func (i *Installer) waitGone(ctx context.Context, objects []*unstructured.Unstructured) error {
	var left []string
	err := i.poll(ctx, func(ctx context.Context) (bool, error) {
		var now []string
		for _, o := range objects {
			client, err := at(i.Client, o)
			if err != nil {
				return false, err
			}
			_, err = client.Get(ctx, o.GetName(), metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return false, err
			}
			now = append(now, Name(o))
		}
		if len(now) > 0 && !slices.Equal(now, left) {
			i.progress("Waiting until gone: %s", strings.Join(now, ", "))
		}
		left = now
		return len(left) == 0, nil
	})
	if errors.Is(err, context.DeadlineExceeded) && len(left) > 0 {
		return fmt.Errorf("%w waiting for these to be gone: %s", action.ErrTimeout, strings.Join(left, ", "))
	}
	return err
}
