package vmicontroller

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// Launcher pods are trusted by their UIDs only. A name, a label or an owner reference is anybody's to write who may
// make pods; a guest would be started in such a pod, or its memory be sent there.
//
//	created   virt-controller remembers the UID that the API server answered (Reconciler.Created)
//	recorded  status.activePods names the UID: the node when the guest is in the pod or may get there, "" before the
//	          pod has a node and when the guest has left it. All others ask life.Recorded and the like: virt-handler
//	          acts on recorded pods only, and no report names another one.
//
// What a virt-controller created that was killed before it could record it is stray: it is deleted, and another one
// made. Nobody has acted on it.

// Purposes of the pods in View.Created. That of a migration's pods is the migration's UID.
const (
	purposeLauncher     = ""
	purposeProvisioning = "provisioning"
)

// own returns the VMI's launcher pods: those that are recorded, those of migrations, and before the VMI has one
// recorded those that were created for it.
func own(view View) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(view.Pods), func(pod *corev1.Pod) bool { return !isOwn(view, pod) })
}

func isOwn(view View, pod *corev1.Pod) bool {
	if life.Recorded(view.VMI, pod) {
		return true
	}
	purpose, created := view.Created[pod.UID]
	switch {
	case !created || purpose == purposeProvisioning:
		return false
	case purpose == purposeLauncher:
		return !Scheduled(view.VMI) && len(view.VMI.Status.ActivePods) == 0
	}
	return true
}

// stray returns the pods alive that look like the VMI's launchers and are not; nobody has acted on them. Nothing is
// stray while a pod is being created, whose UID is not known yet.
func stray(view View) []*corev1.Pod {
	if view.Creating {
		return nil
	}
	var out []*corev1.Pod
	for _, pod := range view.Pods {
		_, recorded := view.Recorded[pod.UID]
		if !isOwn(view, pod) && !recorded && looksLikeLauncher(pod, view.VMI.UID) && life.PodStaying(pod) {
			out = append(out, pod)
		}
	}
	return out
}

func looksLikeLauncher(pod *corev1.Pod, vmi types.UID) bool {
	return pod.Labels[v1.AppLabel] == names.VirtLauncher && OwnedBy(pod, vmi)
}

// prune takes pods out of status.activePods that cannot have the guest any more: those that have ended, or are gone,
// after their guest left them; and, while the guest waits for the report of another pod of its migration, those that
// are gone and hold nothing: virt-handler cannot see that a node was fenced.
func (s *Step) prune(view View) {
	paused := conditions.Find(view.VMI.Status.Conditions, v1.VirtualMachineInstancePaused)
	waits := paused != nil && paused.Reason == names.ReasonPausedToMove
	active := maps.Clone(s.Status.ActivePods)
	maps.DeleteFunc(active, func(uid types.UID, node string) bool {
		i := slices.IndexFunc(view.Pods, func(pod *corev1.Pod) bool { return pod.UID == uid })
		if node == "" {
			return i < 0 || life.PodEnded(view.Pods[i])
		}
		_, held := view.Holders[uid]
		return waits && i < 0 && !held
	})
	s.Status.ActivePods = active
}

// lookAtPods gathers the VMI's pods. When none of those that are recorded or created is in the cache, or one whose
// guest has left it is not, the API server is asked: that a pod is gone is grave.
func (r *Reconciler) lookAtPods(ctx context.Context, view *View) error {
	vmi := view.VMI
	view.Created, view.Creating = r.Created.Of(vmi.UID)
	var err error
	if view.Pods, err = Pods(ctx, r.Client, vmi); err != nil {
		return err
	}
	if vmi.IsFinal() && vmi.DeletionTimestamp == nil || !missing(*view) {
		return nil
	}
	// By label and not by name: a pod may have another name than its VMI's first.
	var live corev1.PodList
	err = r.Live.List(ctx, &live, client.InNamespace(vmi.Namespace),
		client.MatchingLabels{v1.CreatedByLabel: string(vmi.UID)})
	if err != nil {
		return fmt.Errorf("list pods of the VMI: %w", err)
	}
	for i := range live.Items {
		pod := &live.Items[i]
		if !slices.ContainsFunc(view.Pods, func(other *corev1.Pod) bool { return other.UID == pod.UID }) {
			view.Pods = append(view.Pods, pod)
		}
	}
	return nil
}

// ByVMI is an index function: it returns the UID of the VMI that controls an object.
func ByVMI(object client.Object) []string {
	if owner := life.InstanceOf(object); owner != nil {
		return []string{string(owner.UID)}
	}
	return nil
}

// Pods returns the pods that say that the VMI owns them, from a cache with the index PodsByVMI.
func Pods(ctx context.Context, from client.Reader, vmi *v1.VirtualMachineInstance) ([]*corev1.Pod, error) {
	var list corev1.PodList
	err := from.List(ctx, &list, client.InNamespace(vmi.Namespace), client.MatchingFields{PodsByVMI: string(vmi.UID)})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	var out []*corev1.Pod
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out, nil
}

// missing reports whether the cache lacks a pod whose absence would have consequences.
func missing(view View) bool {
	shown := map[types.UID]bool{}
	for _, pod := range own(view) {
		shown[pod.UID] = true
	}
	for uid, node := range view.VMI.Status.ActivePods {
		if !shown[uid] && (node == "" || len(shown) == 0) {
			return true
		}
	}
	for uid, purpose := range view.Created {
		if purpose == purposeLauncher && !shown[uid] && len(view.VMI.Status.ActivePods) == 0 {
			return true
		}
	}
	return false
}

// lookAtRecorded asks the API server which pods are recorded when one is stray as far as the cache shows.
func (r *Reconciler) lookAtRecorded(ctx context.Context, view *View) error {
	if len(stray(*view)) == 0 {
		return nil
	}
	var current v1.VirtualMachineInstance
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(view.VMI), &current); err != nil {
		return err // of the API server's own words, since NotFound and the like are the caller's to read
	}
	if current.UID != view.VMI.UID {
		return frame.ErrStale
	}
	view.Recorded = current.Status.ActivePods
	return nil
}

// strayGrace is the termination grace period of a launcher without a guest, seconds.
const strayGrace = 1

func (r *Reconciler) removeStray(ctx context.Context, vmi *v1.VirtualMachineInstance, pod *corev1.Pod) error {
	deleted, err := r.writes.Delete(ctx, pod, client.GracePeriodSeconds(strayGrace))
	if err != nil {
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	if deleted {
		r.Recorder.Eventf(vmi, corev1.EventTypeWarning, ReasonSuccessfulDelete,
			"Deleted pod %s, which says that it is this VMI's and is not recorded as its launcher", pod.Name)
	}
	return nil
}

// OwnedBy reports whether the pod says that the VMI is its controller, which does not make it the VMI's; see own.
func OwnedBy(pod *corev1.Pod, uid types.UID) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.UID == uid
}
