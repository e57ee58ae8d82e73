package migrationcontroller

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
)

func (r *Reconciler) createPod(ctx context.Context, view View) error {
	claims, err := vmicontroller.Claims(ctx, r.Client, view.VMI)
	if err != nil {
		return err
	}
	limits, err := vmicontroller.ReadLimits(ctx, r.Live, r.Config(), view.VMI.Namespace)
	if err != nil {
		return err
	}
	resources, err := vmicontroller.NetworkResources(ctx, r.Live, view.VMI)
	if err != nil {
		r.Recorder.Eventf(view.Migration, corev1.EventTypeWarning, ReasonFailedCreate, "Error creating pod: %v", err)
		return err
	}
	fenceAfter, err := vmicontroller.FenceAfter(ctx, r.Client, view.VMI, r.FenceAfter)
	if err != nil {
		return err
	}
	stateClaim, err := r.createState(ctx, view)
	if err != nil {
		return err
	}
	pod := Pod(view.Migration, view.VMI, vmicontroller.Facts{
		StateClaim: stateClaim,
		FenceAfter: fenceAfter,
		Config:     r.Config(), Limits: limits, Image: r.Image, ImagePullPolicy: r.ImagePullPolicy, Claims: claims,
		NetworkResources: resources,
	})
	if err := r.keepProcessor(ctx, view, pod); err != nil {
		return err
	}
	err = r.creator().CreatePod(ctx, view.VMI, string(view.Migration.UID), pod)
	if err == nil {
		r.Recorder.Eventf(view.Migration, corev1.EventTypeNormal, ReasonSuccessfulCreate,
			"Created migration target pod %s", pod.Name)
	}
	if err != nil && !errors.Is(err, vmicontroller.ErrRecorded) {
		r.Recorder.Eventf(view.Migration, corev1.EventTypeWarning, ReasonFailedCreate, "Error creating pod: %v", err)
		return fmt.Errorf("create the migration's pod: %w", err)
	}
	return nil
}

func (r *Reconciler) creator() vmicontroller.Creator {
	return vmicontroller.Creator{Writes: r.writes, Live: r.Live, Created: r.Created}
}

// isTarget reports whether a pod is the one that was created for a migration: by this virt-controller, or by one that
// has recorded it.
func isTarget(
	migration *v1.VirtualMachineInstanceMigration, instance *v1.VirtualMachineInstance, created map[types.UID]string,
	pod *corev1.Pod,
) bool {
	if created[pod.UID] == string(migration.UID) {
		return true
	}
	_, recorded := instance.Status.ActivePods[pod.UID]
	return recorded && pod.Labels[v1.MigrationJobLabel] == string(migration.UID)
}

// lookAtTargetPod asks the API server for the migration's pod, which the cache does not show.
func (r *Reconciler) lookAtTargetPod(ctx context.Context, view *View) error {
	view.Uncreated = true
	for _, purpose := range view.Created {
		if purpose == string(view.Migration.UID) {
			view.Uncreated = false
		}
	}
	var pods corev1.PodList
	err := r.Live.List(ctx, &pods, client.InNamespace(view.Migration.Namespace),
		client.MatchingLabels{v1.MigrationJobLabel: string(view.Migration.UID)})
	if err != nil {
		return fmt.Errorf("list the migration's pods: %w", err)
	}
	for i := range pods.Items {
		if isTarget(view.Migration, view.VMI, view.Created, &pods.Items[i]) {
			view.Pod, view.Uncreated = &pods.Items[i], false
		}
	}
	return nil
}

// keepProcessor lets the pod onto nodes only that can show the guest the CPU that it has.
func (r *Reconciler) keepProcessor(ctx context.Context, view View, pod *corev1.Pod) error {
	if emulated(view.VMI) || !vmicontroller.FollowsNode(view.VMI) {
		return nil
	}
	source, node := &corev1.Pod{}, &corev1.Node{}
	// The cache has no selectors of pods.
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: view.VMI.Namespace, Name: view.SourcePod}, source)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get the guest's pod: %w", err)
	}
	err = r.Client.Get(ctx, types.NamespacedName{Name: view.VMI.Status.NodeName}, node)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get the guest's node: %w", err)
	}
	maps.Copy(pod.Spec.NodeSelector, vmicontroller.HostModelSelector(view.VMI, source, node))
	return nil
}

func (r *Reconciler) deletePod(ctx context.Context, view View) error {
	// There is no guest in it that would need time.
	deleted, err := r.writes.Delete(ctx, view.Pod, client.GracePeriodSeconds(1))
	if err != nil {
		return fmt.Errorf("delete pod %s: %w", view.Pod.Name, err)
	}
	if deleted {
		r.Recorder.Eventf(view.Migration, corev1.EventTypeNormal, ReasonSuccessfulDelete,
			"Deleted migration target pod %s", view.Pod.Name)
	}
	return nil
}
