package vmistatus

import (
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

// Reasons of the condition AgentVersionNotSupported, KubeVirt's.
const (
	reasonBasicCommands    = "This guest agent doesn't support required basic commands"
	reasonKeyCommands      = "This guest agent doesn't support required public key commands"
	reasonPasswordCommands = "This guest agent doesn't support required password commands"
)

// agentSupport sets the condition whether the guest agent lacks commands that this VMI needs.
func agentSupport(vmi *v1.VirtualMachineInstance, guest *launcherpb.GuestState, c *conditionList) {
	if !guest.AgentConnected {
		c.remove(v1.VirtualMachineInstanceUnsupportedAgent)
		return
	}
	keys := slices.ContainsFunc(vmi.Spec.AccessCredentials, func(a v1.AccessCredential) bool {
		return a.SSHPublicKey != nil && a.SSHPublicKey.PropagationMethod.QemuGuestAgent != nil
	})
	passwords := slices.ContainsFunc(vmi.Spec.AccessCredentials,
		func(a v1.AccessCredential) bool { return a.UserPassword != nil })
	reason := ""
	var lacks []string
	for _, need := range []struct {
		wanted   bool
		commands []string
		reason   string
	}{
		{true, launcherpb.BasicCommands, reasonBasicCommands},
		{keys, launcherpb.KeyCommands, reasonKeyCommands},
		{passwords, launcherpb.PasswordCommands, reasonPasswordCommands},
	} {
		for _, command := range need.commands {
			if !need.wanted || !slices.Contains(guest.AgentLacks, command) {
				continue
			}
			lacks = append(lacks, command)
			if reason == "" {
				reason = need.reason
			}
		}
	}
	c.setOrRemove(len(lacks) > 0, v1.VirtualMachineInstanceUnsupportedAgent, reason,
		"The guest agent lacks or may not answer "+strings.Join(lacks, ", ")+
			"; install a newer one in the guest, or allow these in its configuration.")
}
