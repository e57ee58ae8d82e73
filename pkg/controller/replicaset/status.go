package replicaset

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	v1 "kubevirt.io/api/core/v1"
)

// Reasons of events and conditions; KubeVirt's words.
const (
	ReasonPaused       = "Paused"
	ReasonFailedCreate = "FailedCreate"
	ReasonFailedDelete = "FailedDelete"
	eventPaused        = "SuccessfulPaused"
	eventResumed       = "SuccessfulResumed"
)

// Failure is why the set does not get its VMIs; the zero Failure is none.
type Failure struct{ Reason, Message string }

// Status is what the set's status should be. vmis are the set's, as they are after the step was taken.
func Status(set *v1.VirtualMachineInstanceReplicaSet, selector labels.Selector, vmis []*v1.VirtualMachineInstance, failure Failure, now time.Time) v1.VirtualMachineInstanceReplicaSetStatus {
	status := *set.Status.DeepCopy()
	active := Active(vmis)
	status.Replicas, status.ReadyReplicas = int32(len(active)), 0
	for _, instance := range active {
		if Ready(instance) {
			status.ReadyReplicas++
		}
	}
	status.LabelSelector = selector.String()
	paused := Failure{}
	if set.Spec.Paused {
		paused = Failure{Reason: ReasonPaused, Message: "nothing is created or deleted until spec.paused is false"}
	}
	setCondition(&status, v1.VirtualMachineInstanceReplicaSetReplicaPaused, paused, now)
	setCondition(&status, v1.VirtualMachineInstanceReplicaSetReplicaFailure, failure, now)
	return status
}

// setCondition has a condition while there is a reason for it.
func setCondition(status *v1.VirtualMachineInstanceReplicaSetStatus, of v1.VirtualMachineInstanceReplicaSetConditionType, why Failure, now time.Time) {
	i := slices.IndexFunc(status.Conditions, func(c v1.VirtualMachineInstanceReplicaSetCondition) bool { return c.Type == of })
	if why.Reason == "" {
		if i >= 0 {
			status.Conditions = slices.Delete(status.Conditions, i, i+1)
		}
		return
	}
	condition := v1.VirtualMachineInstanceReplicaSetCondition{
		Type: of, Status: corev1.ConditionTrue, Reason: why.Reason, Message: why.Message, LastTransitionTime: metav1.NewTime(now),
	}
	if i < 0 {
		status.Conditions = append(status.Conditions, condition)
		return
	}
	condition.LastTransitionTime = status.Conditions[i].LastTransitionTime
	status.Conditions[i] = condition
}

// has reports a condition of a status.
func has(status v1.VirtualMachineInstanceReplicaSetStatus, of v1.VirtualMachineInstanceReplicaSetConditionType) bool {
	return slices.ContainsFunc(status.Conditions, func(c v1.VirtualMachineInstanceReplicaSetCondition) bool { return c.Type == of })
}
