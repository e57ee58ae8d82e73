package agent

import (
	"slices"

	v1 "kubevirt.io/api/core/v1"
)

// commandLoad is known to agents from version 10 on, in Linux and Windows.
const commandLoad = "guest-get-load"

// AskLoad asks how many processes ran or waited on average in the last 1, 5 and 15 minutes, an agent whose info says
// that it can report; nil when it does not.
func AskLoad(info *v1.VirtualMachineInstanceGuestAgentInfo, send func(command string) (string, error)) []float64 {
	if !slices.Contains(info.SupportedCommands, v1.GuestAgentCommandInfo{Name: commandLoad, Enabled: true}) {
		return nil
	}
	reply, err := send(Command(commandLoad, nil))
	if err != nil {
		return nil
	}
	var r struct {
		One     *float64 `json:"load1m"`
		Five    *float64 `json:"load5m"`
		Fifteen *float64 `json:"load15m"`
	}
	if unwrap(reply, &r) != nil || r.One == nil || r.Five == nil || r.Fifteen == nil ||
		min(*r.One, *r.Five, *r.Fifteen) < 0 {
		return nil
	}
	return []float64{*r.One, *r.Five, *r.Fifteen}
}
