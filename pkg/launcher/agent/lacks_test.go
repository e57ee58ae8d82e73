package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

func TestParseLacks(t *testing.T) {
	info := func(commands []string, disabled string) string {
		var list []string
		for _, c := range commands {
			list = append(list, fmt.Sprintf(`{"name":%q,"enabled":%t}`, c, c != disabled))
		}
		return `{"return":{"version":"1","supported_commands":[` + strings.Join(list, ",") + `]}}`
	}
	all := slices.Concat(launcherpb.BasicCommands, launcherpb.KeyCommands, launcherpb.PasswordCommands)
	for name, tc := range map[string]struct {
		reply string
		want  []string
	}{
		"all":          {info(all, ""), nil},
		"one disabled": {info(all, "guest-get-users"), []string{"guest-get-users"}},
		"old": {
			info(launcherpb.BasicCommands, ""), slices.Concat(launcherpb.KeyCommands, launcherpb.PasswordCommands),
		},
		"silent": {`{"return":{"version":"1"}}`, nil},
	} {
		if got, err := ParseLacks(tc.reply); err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := ParseLacks("{"); err == nil {
		t.Error("nonsense was read")
	}
}
