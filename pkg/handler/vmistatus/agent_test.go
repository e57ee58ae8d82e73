package vmistatus

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

func TestAgentSupport(t *testing.T) {
	keys := v1.AccessCredential{SSHPublicKey: &v1.SSHPublicKeyAccessCredential{
		Source: v1.SSHPublicKeyAccessCredentialSource{Secret: &v1.AccessCredentialSecretSource{SecretName: "s"}},
		PropagationMethod: v1.SSHPublicKeyAccessCredentialPropagationMethod{
			QemuGuestAgent: &v1.QemuGuestAgentSSHPublicKeyAccessCredentialPropagation{Users: []string{"a"}},
		},
	}}
	for name, tc := range map[string]struct {
		guest       *launcherpb.GuestState
		credentials []v1.AccessCredential
		reason, say string
	}{
		"supported":     {guest: &launcherpb.GuestState{AgentConnected: true}},
		"not connected": {guest: &launcherpb.GuestState{AgentLacks: []string{"guest-ping"}}},
		"not needed": {
			guest: &launcherpb.GuestState{
				AgentConnected: true, AgentLacks: []string{"guest-ssh-add-authorized-keys", "guest-set-user-password"},
			},
		},
		"basic": {
			guest:  &launcherpb.GuestState{AgentConnected: true, AgentLacks: []string{"guest-get-users"}},
			reason: reasonBasicCommands, say: "guest-get-users;",
		},
		"keys": {
			&launcherpb.GuestState{AgentConnected: true, AgentLacks: []string{"guest-ssh-add-authorized-keys"}},
			[]v1.AccessCredential{keys},
			reasonKeyCommands, "guest-ssh-add-authorized-keys;",
		},
		"keys and basic": {
			&launcherpb.GuestState{
				AgentConnected: true, AgentLacks: []string{"guest-ping", "guest-ssh-add-authorized-keys"},
			},
			[]v1.AccessCredential{keys},
			reasonBasicCommands, "guest-ping, guest-ssh-add-authorized-keys;",
		},
		"not a command": {guest: &launcherpb.GuestState{AgentConnected: true, AgentLacks: []string{"\x1b[2J"}}},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := &v1.VirtualMachineInstance{}
			vmi.Spec.AccessCredentials = tc.credentials
			c := conditionList{
				now: now,
				list: []v1.VirtualMachineInstanceCondition{
					{Type: v1.VirtualMachineInstanceUnsupportedAgent, Status: corev1.ConditionTrue},
				},
			}
			agentSupport(vmi, tc.guest, &c)
			switch {
			case tc.reason == "" && len(c.list) > 0:
				t.Errorf("%+v", c.list)
			case tc.reason != "" &&
				(len(c.list) != 1 || c.list[0].Reason != tc.reason || !strings.Contains(c.list[0].Message, tc.say)):
				t.Errorf("%+v", c.list)
			}
		})
	}
}
