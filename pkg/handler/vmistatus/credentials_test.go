package vmistatus

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

func TestCredentials(t *testing.T) {
	var old []v1.VirtualMachineInstanceCondition
	for _, step := range []struct {
		done   *launcherpb.AgentCredentials
		status corev1.ConditionStatus
		event  string
	}{
		{nil, "", ""},
		{
			&launcherpb.AgentCredentials{Failure: "password of user ann: no such user\x1b[2J"}, corev1.ConditionFalse,
			"AccessCredentialsSyncFailed",
		},
		{&launcherpb.AgentCredentials{Failure: "password of user ann: no such user\x1b[2J"}, corev1.ConditionFalse, ""},
		{&launcherpb.AgentCredentials{}, corev1.ConditionTrue, "AccessCredentialsSyncSuccess"},
		{&launcherpb.AgentCredentials{}, corev1.ConditionTrue, ""},
		{nil, corev1.ConditionTrue, ""}, // the guest boots again
	} {
		c := conditionList{now: time.Unix(0, 0), list: append([]v1.VirtualMachineInstanceCondition{}, old...)}
		credentials(step.done, &c)
		got := credentialCondition(c.list)
		events := credentialEvents(old, c.list)
		event := ""
		if len(events) > 0 {
			event = events[0].Reason
		}
		if got.Status != step.status || event != step.event ||
			step.status == corev1.ConditionFalse && got.Message != "password of user ann: no such user[2J" {
			t.Errorf("%v: %+v, %v", step.done, got, events)
		}
		old = c.list
	}
}
