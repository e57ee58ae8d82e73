package vmicontroller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// Gate is the condition without which a launcher pod is not Ready: that the guest runs in it. Services send traffic to
// pods that are Ready, and a launcher that waits for a guest, or that a guest has left, has nobody to take it. Type and
// meaning are KubeVirt's, where it is false for a paused guest; there a migration's target has it from its beginning.
const Gate = v1.VirtualMachineUnpaused

// Reasons of a gate that is False.
const (
	ReasonGatePaused = "Paused"
	ReasonGateMoved  = "Moved"
)

// GateChange is a gate to be written.
type GateChange struct {
	Pod       *corev1.Pod
	Condition corev1.PodCondition
}

// gate opens the gate of the pod that has the guest, and closes those of others. A gate that was never opened need not
// be closed.
func (s *Step) gate(view View) {
	if view.VMI.Status.Phase != v1.Running {
		return // not yet, or nobody knows
	}
	guestPod := life.GuestPod(view.VMI, view.Pods)
	if guestPod == nil {
		return
	}
	want := corev1.PodCondition{Type: Gate, Status: corev1.ConditionTrue}
	if conditions.True(view.VMI.Status.Conditions, v1.VirtualMachineInstancePaused) {
		want.Status, want.Reason, want.Message = corev1.ConditionFalse, ReasonGatePaused, "The guest is paused."
	}
	s.setGate(guestPod, want, view.Now)
	for _, pod := range own(view) {
		if pod == guestPod || !life.PodStaying(pod) {
			continue
		}
		if conditions.True(pod.Status.Conditions, Gate) {
			s.setGate(pod, corev1.PodCondition{
				Type: Gate, Status: corev1.ConditionFalse, Reason: ReasonGateMoved,
				Message: "The guest runs in pod " + guestPod.Name + ".",
			}, view.Now)
		}
	}
}

func (s *Step) setGate(pod *corev1.Pod, want corev1.PodCondition, now time.Time) {
	gated := slices.ContainsFunc(pod.Spec.ReadinessGates,
		func(g corev1.PodReadinessGate) bool { return g.ConditionType == Gate })
	if have := conditions.Find(pod.Status.Conditions, Gate); !gated || have != nil && have.Status == want.Status {
		return
	}
	want.LastTransitionTime = metav1.NewTime(now)
	s.Gates = append(s.Gates, GateChange{Pod: pod, Condition: want})
}

// applyGates writes gates, each in a patch of its own condition: all others are the kubelet's.
func (r *Reconciler) applyGates(ctx context.Context, gates []GateChange) error {
	for _, gate := range gates {
		if r.writes.Stale(gate.Pod) {
			continue
		}
		text, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": gate.Pod.UID},
			"status":   map[string]any{"conditions": []corev1.PodCondition{gate.Condition}},
		})
		if err != nil {
			return fmt.Errorf("write the readiness gate of pod %s: %w", gate.Pod.Name, err)
		}
		written := gate.Pod.DeepCopy()
		err = r.writes.PatchStatusAs(ctx, written, client.RawPatch(types.StrategicMergePatchType, text))
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			continue // it is gone, perhaps another has its name: its event makes another pass
		}
		if err != nil {
			return fmt.Errorf("write the readiness gate of pod %s: %w", gate.Pod.Name, err)
		}
	}
	return nil
}
