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
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// plan adds the pods and the claim that are to be created.
func (s *Step) plan(view View) {
	if len(s.Attach) > 0 {
		s.Attachment = targetAttachment(view, s.Attach)
		s.Used = vmicontroller.Used(view.Facts.Claims, s.Attachment)
	}
	if !s.CreatePod {
		return
	}
	if err := view.Facts.NetworkErr; err != nil {
		s.cannotCreate(view, "Error creating pod", err)
		return
	}
	source, target := stateClaims(view.Migration, view.VMI)
	switch {
	case target == source, view.StateClaim != nil:
	case view.StateTaken:
		s.cannotCreate(view, "Error creating the claim of the persistent state",
			fmt.Errorf("PersistentVolumeClaim %s exists already and is not this migration's", target))
		return
	default:
		s.CreateState = vmicontroller.MigrationStateClaim(view.Migration, view.VMI, view.Facts.Config)
	}
	facts := view.Facts
	facts.StateClaim = target
	s.Pod = Pod(view.Migration, view.VMI, facts)
	s.Used = vmicontroller.Used(facts.Claims, s.Pod)
	if view.SourceNode != nil {
		// Only nodes with these labels can show the guest the CPU that it has.
		maps.Copy(s.Pod.Spec.NodeSelector, vmicontroller.HostModelSelector(view.VMI, view.Source, view.SourceNode))
	}
}

// cannotCreate leaves the migration as it is, to be tried again.
func (s *Step) cannotCreate(view View, what string, err error) {
	*s = Step{Status: *view.Migration.Status.DeepCopy(), Failed: err}
	s.event(corev1.EventTypeWarning, ReasonFailedCreate, what+": "+err.Error())
}

// lookAtFacts gathers what pods that are to be created depend on.
func (r *Reconciler) lookAtFacts(ctx context.Context, view *View) error {
	step := decide(*view)
	if !step.CreatePod && len(step.Attach) == 0 {
		return nil
	}
	claims, err := vmicontroller.Claims(ctx, r.Client, view.VMI)
	if err != nil {
		return err
	}
	view.Facts = vmicontroller.Facts{
		Config: r.Config(), Image: r.Image, ImagePullPolicy: r.ImagePullPolicy, Claims: claims,
	}
	if !step.CreatePod {
		return nil
	}
	if err := view.Facts.Gather(ctx, r.Client, r.Live, view.VMI, r.FenceAfter); err != nil {
		return err
	}
	return r.lookAtProcessor(ctx, view)
}

// createPod makes the claim for the guest's state where it goes, if that is another one, and the migration's pod. It
// notes before that the claims are used.
func (r *Reconciler) createPod(ctx context.Context, view View, step *Step) error {
	if err := r.createState(ctx, view, step.CreateState); err != nil {
		return err
	}
	if err := vmicontroller.NoteUsed(ctx, r.writes, step.Used); err != nil {
		return err
	}
	err := r.creator().CreatePod(ctx, view.VMI, string(view.Migration.UID), step.Pod)
	if err == nil {
		r.Recorder.Eventf(view.Migration, corev1.EventTypeNormal, ReasonSuccessfulCreate,
			"Created migration target pod %s", step.Pod.Name)
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
	return life.Recorded(instance, pod) && pod.Labels[v1.MigrationJobLabel] == string(migration.UID)
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

// lookAtProcessor gathers what says which nodes can show the guest the CPU that it has; nothing where all can.
func (r *Reconciler) lookAtProcessor(ctx context.Context, view *View) error {
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
	view.Source, view.SourceNode = source, node
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
