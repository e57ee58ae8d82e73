package vmistatus

import (
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

const credentialsApplied = "The guest agent has applied spec.accessCredentials."

// credentials sets the condition whether the guest has the keys and passwords that it shall have. It sets none before
// the agent was asked for the first time.
func credentials(done *launcherpb.AgentCredentials, c *conditionList) {
	switch {
	case done == nil:
	case done.Failure == "":
		c.set(v1.VirtualMachineInstanceAccessCredentialsSynchronized, corev1.ConditionTrue, "", credentialsApplied)
	default:
		c.set(v1.VirtualMachineInstanceAccessCredentialsSynchronized, corev1.ConditionFalse,
			string(v1.AccessCredentialsSyncFailed), clean(done.Failure))
	}
}

// credentialEvents report a change of that.
func credentialEvents(old, next []v1.VirtualMachineInstanceCondition) []Event {
	before, after := credentialCondition(old), credentialCondition(next)
	switch {
	case after.Status == corev1.ConditionTrue && before.Status != after.Status:
		return []Event{{corev1.EventTypeNormal, string(v1.AccessCredentialsSyncSuccess), after.Message}}
	case after.Status == corev1.ConditionFalse && before.Message != after.Message:
		return []Event{{corev1.EventTypeWarning, string(v1.AccessCredentialsSyncFailed), after.Message}}
	}
	return nil
}

func credentialCondition(list []v1.VirtualMachineInstanceCondition) v1.VirtualMachineInstanceCondition {
	for _, c := range list {
		if c.Type == v1.VirtualMachineInstanceAccessCredentialsSynchronized {
			return c
		}
	}
	return v1.VirtualMachineInstanceCondition{}
}
