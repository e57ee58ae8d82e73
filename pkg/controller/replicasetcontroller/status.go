package replicasetcontroller

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

// Reasons of events and conditions; KubeVirt's words.
const (
	ReasonPaused       = "Paused"
	ReasonFailedCreate = "FailedCreate"
	ReasonFailedDelete = "FailedDelete"
	eventPaused        = "SuccessfulPaused"
	eventResumed       = "SuccessfulResumed"
)

// Failure is the reason why the set does not get its VMIs; the zero Failure is none.
type Failure struct{ Reason, Message string }

// Status returns the set's status as it should be. vmis are the set's, as they are after the step was taken.
func Status(set *v1.VirtualMachineInstanceReplicaSet, selector labels.Selector, vmis []*v1.VirtualMachineInstance,
	failure Failure, now time.Time,
) v1.VirtualMachineInstanceReplicaSetStatus {
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
	setIf := func(of v1.VirtualMachineInstanceReplicaSetConditionType, why Failure) {
		conditions.SetIf(&status.Conditions, why.Reason != "", v1.VirtualMachineInstanceReplicaSetCondition{
			Type: of, Status: corev1.ConditionTrue, Reason: why.Reason, Message: why.Message,
		}, now)
	}
	setIf(v1.VirtualMachineInstanceReplicaSetReplicaPaused, paused)
	setIf(v1.VirtualMachineInstanceReplicaSetReplicaFailure, failure)
	return status
}
