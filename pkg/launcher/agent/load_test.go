package agent

import (
	"errors"
	"slices"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestAskLoad(t *testing.T) {
	able := []v1.GuestAgentCommandInfo{{Name: "guest-info", Enabled: true}, {Name: "guest-get-load", Enabled: true}}
	for name, tc := range map[string]struct {
		commands []v1.GuestAgentCommandInfo
		reply    string
		want     []float64
	}{
		"said":  {able, `{"return": {"load1m": 0.5, "load5m": 0.25, "load15m": 0}}`, []float64{0.5, 0.25, 0}},
		"older": {able[:1], `{"return": {"load1m": 0.5, "load5m": 0.25, "load15m": 0}}`, nil},
		"forbidden": {
			[]v1.GuestAgentCommandInfo{{Name: "guest-get-load"}},
			`{"return": {"load1m": 1, "load5m": 1, "load15m": 1}}`, nil,
		},
		"less":     {able, `{"return": {"load1m": 0.5}}`, nil},
		"nonsense": {able, `{"return": {"load1m": -1, "load5m": 1, "load15m": 1}}`, nil},
		"no JSON":  {able, `load`, nil},
		"an error": {able, ``, nil},
	} {
		got := AskLoad(&v1.VirtualMachineInstanceGuestAgentInfo{SupportedCommands: tc.commands},
			func(string) (string, error) {
				if tc.reply == "" {
					return "", errors.New("timed out")
				}
				return tc.reply, nil
			})
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
