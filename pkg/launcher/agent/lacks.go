package agent

import (
	"slices"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

// ParseLacks reads from the reply to guest-info which of those commands the agent lacks, or is forbidden to answer. An
// agent that lists none of its commands is not believed: it lacks nothing.
func ParseLacks(reply string) ([]string, error) {
	_, listed, err := parseInfo(reply)
	if err != nil || len(listed) == 0 {
		return nil, err
	}
	can := map[string]bool{}
	for _, c := range listed {
		can[c.Name] = c.Enabled
	}
	var lacks []string
	for _, command := range slices.Concat(launcherpb.BasicCommands, launcherpb.KeyCommands,
		launcherpb.PasswordCommands) {
		if !can[command] {
			lacks = append(lacks, command)
		}
	}
	return lacks, nil
}
