package vmicontroller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/expansion"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// PodExpansion is a pod whose kubelet is asked to make the file systems of claims larger, by an annotation: any change
// of the pod makes it look.
type PodExpansion struct {
	Pod    *corev1.Pod
	Claims string
}

// expand keeps the sizes of the claims in the status of a VMI with a guest, which virt-handler and the launcher follow,
// and the condition that says how far an expansion is. While the guest moves everything waits, as in plug.
func (s *Step) expand(view View) {
	if moving(view.VMI) || view.VMI.Status.Phase == v1.Unknown {
		return
	}
	var waiting, changed []string
	onNode := map[types.UID][]string{}
	pods := map[types.UID]*corev1.Pod{}
	for i := range s.Status.VolumeStatus {
		status := &s.Status.VolumeStatus[i]
		volume := hotplug.Volume(&view.VMI.Spec, status.Name)
		if status.PersistentVolumeClaimInfo == nil || volume == nil {
			continue
		}
		claim := view.Claims[status.PersistentVolumeClaimInfo.ClaimName]
		if claim == nil {
			continue
		}
		if sized(status, claim) {
			changed = append(changed, claim.Name)
		}
		under := expansion.Of(claim)
		if under == nil {
			continue
		}
		waiting = append(waiting, hotplug.Naming(status.Name)+under.String())
		if pod := mountedIn(view, status); pod != nil && under.OnNode {
			pods[pod.UID] = pod
			onNode[pod.UID] = append(onNode[pod.UID], claim.Name+"="+under.Wants.String())
		}
	}
	for uid, claims := range onNode {
		slices.Sort(claims)
		if text := strings.Join(claims, ","); pods[uid].Annotations[names.AnnotationExpanding] != text {
			s.Expansions = append(s.Expansions, PodExpansion{pods[uid], text})
		}
	}
	s.sayExpanding(view, waiting, changed)
}

// sayExpanding sets the condition while the storage works on claims, and hands it over to virt-handler then.
func (s *Step) sayExpanding(view View, waiting, changed []string) {
	now := conditions.Find(s.Status.Conditions, expansion.Condition)
	next := v1.VirtualMachineInstanceCondition{Type: expansion.Condition, Status: corev1.ConditionTrue}
	switch {
	case len(waiting) > 0:
		next.Reason, next.Message = expansion.ReasonStorage, strings.Join(waiting, "; ")
	case now != nil && now.Reason == expansion.ReasonStorage:
		next.Reason, next.Message = expansion.ReasonGuest, "The guest's disks get the sizes of their claims."
	case len(changed) > 0:
		next.Reason = expansion.ReasonGuest
		next.Message = "The guest's disks get the sizes of claims " + strings.Join(changed, ", ") + "."
	default:
		return
	}
	conditions.Set(&s.Status.Conditions, next, view.Now)
}

// sized brings the sizes in a volume's status up to its claim's, and reports whether the capacity has changed.
func sized(status *v1.VolumeStatus, claim *corev1.PersistentVolumeClaim) bool {
	info := status.PersistentVolumeClaimInfo
	have, want := info.Capacity[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
	if equality.Semantic.DeepEqual(info.Capacity, claim.Status.Capacity) &&
		equality.Semantic.DeepEqual(info.Requests, claim.Spec.Resources.Requests) {
		return false
	}
	next := *info
	next.Capacity, next.Requests = claim.Status.Capacity, claim.Spec.Resources.Requests
	status.PersistentVolumeClaimInfo = &next
	return have.Cmp(want) != 0
}

// mountedIn returns the pod for which the kubelet of the guest's node has mounted a volume.
func mountedIn(view View, status *v1.VolumeStatus) *corev1.Pod {
	if status.HotplugVolume != nil {
		return attachment(view, status)
	}
	return life.GuestPod(view.VMI, view.Pods)
}

// applyExpansions writes the annotations, each by the pod's status, which is all that virt-controller may write of it.
func (r *Reconciler) applyExpansions(ctx context.Context, expansions []PodExpansion) error {
	for _, e := range expansions {
		if r.writes.Stale(e.Pod) {
			continue
		}
		text, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": e.Pod.UID, "annotations": map[string]string{names.AnnotationExpanding: e.Claims},
		}})
		if err != nil {
			return fmt.Errorf("ask the kubelet of pod %s to expand: %w", e.Pod.Name, err)
		}
		written := e.Pod.DeepCopy()
		err = r.writes.PatchStatusAs(ctx, written, client.RawPatch(types.StrategicMergePatchType, text))
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			continue // as in applyGates
		}
		if err != nil {
			return fmt.Errorf("ask the kubelet of pod %s to expand: %w", e.Pod.Name, err)
		}
	}
	return nil
}
