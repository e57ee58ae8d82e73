package poolcontroller

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/pool/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

// Reasons of conditions and events; KubeVirt's words.
const (
	ReasonFailedScaleOut = "FailedScaleOut"
	ReasonFailedScaleIn  = "FailedScaleIn"
	ReasonFailedUpdate   = "FailedUpdate"
	ReasonUpdated        = "SuccessfulUpdate"
	ReasonFailedPruning  = "FailedRevisionPruning"
	ReasonPaused         = "SuccessfulPaused"
	ReasonResumed        = "SuccessfulResume"
)

// Failure is the reason why the pool's VMs are not as they should be; the zero Failure is none.
type Failure struct{ Reason, Message string }

// Status returns the pool's status as it should be. machines are the pool's VMs, as they are after the step was taken.
func Status(
	p *v1beta1.VirtualMachinePool, selector labels.Selector, machines []*v1.VirtualMachine, failure Failure,
	now time.Time,
) v1beta1.VirtualMachinePoolStatus {
	status := *p.Status.DeepCopy()
	status.Replicas, status.ReadyReplicas = int32(len(machines)), 0
	for _, machine := range machines {
		if Ready(machine) {
			status.ReadyReplicas++
		}
	}
	status.LabelSelector = selector.String()
	paused := Failure{}
	if p.Spec.Paused {
		paused = Failure{
			Reason:  ReasonPaused,
			Message: "nothing is created, changed or deleted until spec.paused is false",
		}
	}
	setIf := func(of v1beta1.VirtualMachinePoolConditionType, why Failure) {
		conditions.SetIf(&status.Conditions, why.Reason != "", v1beta1.VirtualMachinePoolCondition{
			Type: of, Status: corev1.ConditionTrue, Reason: why.Reason, Message: why.Message,
		}, now)
	}
	setIf(v1beta1.VirtualMachinePoolReplicaPaused, paused)
	setIf(v1beta1.VirtualMachinePoolReplicaFailure, failure)
	return status
}
