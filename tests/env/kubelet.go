package env

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What the rest of a cluster does to a VM's objects, step by step, for a test to play.

// CreateNode makes a Ready node with a virt-handler that is alive.
func (e *Environment) CreateNode(ctx context.Context, name string) (*corev1.Node, error) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:        name,
		Labels:      map[string]string{v1.NodeSchedulable: "true"},
		Annotations: map[string]string{v1.VirtHandlerHeartbeat: Heartbeat(time.Now())},
	}}
	if err := e.Client.Create(ctx, node); err != nil {
		return nil, fmt.Errorf("create node %s: %w", name, err)
	}
	return node, e.SetNodeReady(ctx, node, corev1.ConditionTrue)
}

// Heartbeat is the annotation that virt-handler leaves on its node.
func Heartbeat(at time.Time) string { return fmt.Sprintf("%q", at.UTC().Format(time.RFC3339)) }

// SetNodeReady writes a node's Ready condition, as its kubelet or the node controller does.
func (e *Environment) SetNodeReady(ctx context.Context, node *corev1.Node, status corev1.ConditionStatus) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { // virt-controller writes nodes, too
		if err := e.Client.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil {
			return err
		}
		node.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: status, Reason: "Test", Message: "test", LastTransitionTime: metav1.Now()},
		}
		return e.Client.Status().Update(ctx, node)
	})
	if err != nil {
		return fmt.Errorf("write status of node %s: %w", node.Name, err)
	}
	return nil
}

// Bind puts a pod on a node, as the scheduler does.
func (e *Environment) Bind(ctx context.Context, pod *corev1.Pod, node string) error {
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}
	if err := e.Client.SubResource("binding").Create(ctx, pod, binding); err != nil {
		return fmt.Errorf("bind pod %s: %w", pod.Name, err)
	}
	return e.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod)
}

// SetPodStatus changes a pod's status, as the kubelet and the scheduler do.
func (e *Environment) SetPodStatus(ctx context.Context, pod *corev1.Pod, change func(*corev1.PodStatus)) error {
	if err := e.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
		return fmt.Errorf("get pod %s: %w", pod.Name, err)
	}
	before := pod.DeepCopy()
	change(&pod.Status)
	if err := e.Client.Status().Patch(ctx, pod, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("write status of pod %s: %w", pod.Name, err)
	}
	return nil
}

// RemovePod takes away a pod whose containers have ended, as the kubelet does with a deleted one: it says first that
// they have.
func (e *Environment) RemovePod(ctx context.Context, pod *corev1.Pod) error {
	err := e.SetPodStatus(ctx, pod, func(status *corev1.PodStatus) {
		if status.Phase != corev1.PodFailed {
			status.Phase = corev1.PodSucceeded
		}
	})
	if err != nil {
		return err
	}
	if err := e.Client.Delete(ctx, pod, client.GracePeriodSeconds(0)); err != nil {
		return fmt.Errorf("remove pod %s: %w", pod.Name, err)
	}
	return nil
}

// SetVMIStatus changes a VMI's status, as virt-handler does.
func (e *Environment) SetVMIStatus(
	ctx context.Context, vmi *v1.VirtualMachineInstance, change func(*v1.VirtualMachineInstanceStatus),
) error {
	if err := e.Client.Get(ctx, client.ObjectKeyFromObject(vmi), vmi); err != nil {
		return fmt.Errorf("get VMI %s: %w", vmi.Name, err)
	}
	before := vmi.DeepCopy()
	change(&vmi.Status)
	if err := e.Client.Status().Patch(ctx, vmi, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("write status of VMI %s: %w", vmi.Name, err)
	}
	return nil
}

// SetVMIPhase moves a VMI to a phase that virt-handler writes, with the Ready condition that goes
// with it.
func (e *Environment) SetVMIPhase(
	ctx context.Context, vmi *v1.VirtualMachineInstance, phase v1.VirtualMachineInstancePhase,
) error {
	ready := corev1.ConditionFalse
	if phase == v1.Running {
		ready = corev1.ConditionTrue
	}
	return e.SetVMIStatus(ctx, vmi, func(status *v1.VirtualMachineInstanceStatus) {
		status.Phase = phase
		status.PhaseTransitionTimestamps = append(status.PhaseTransitionTimestamps,
			v1.VirtualMachineInstancePhaseTransitionTimestamp{Phase: phase, PhaseTransitionTimestamp: metav1.Now()})
		for i := range status.Conditions {
			if status.Conditions[i].Type == v1.VirtualMachineInstanceReady {
				status.Conditions[i].Status, status.Conditions[i].Reason, status.Conditions[i].Message = ready, "", ""
			}
		}
	})
}
