package guestcmd

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/clitest"
)

// Each verb asks its subresource, prints what that says as KubeVirt's client does, and names the instance with -o name.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for subresource, verb := range map[string]func(*cli.Factory) *cobra.Command{
		"guestosinfo": NewCmdGuestOSInfo, "userlist": NewCmdUserList, "filesystemlist": NewCmdFSList,
	} {
		api := clienttest.New(t)
		api.Put("/apis/subresources.kubevirt.io/v1/namespaces/team-a/virtualmachineinstances/web/"+subresource,
			map[string]any{"guestAgentVersion": "9", "items": []any{}})
		command := clitest.Command{New: verb, Kubeconfig: api.Kubeconfig("team-a")}
		out, errOut, err := command.Run(t, "web")
		var found map[string]any
		if err != nil || errOut != "" || json.Unmarshal([]byte(out), &found) != nil ||
			!strings.HasPrefix(out, "{\n  \"") {
			t.Errorf("%s: %q, %q, %v", subresource, out, errOut, err)
		}
		out, _, err = command.Run(t, "web", "-o", "name")
		if err != nil || out != "virtualmachineinstance.kubevirt.io/web\n" {
			t.Errorf("%s -o name: %q, %v", subresource, out, err)
		}
		if _, _, err := command.Run(t, "ghost"); cli.ExitCode(err) != cli.ExitNotFound {
			t.Errorf("%s of no VM: %v", subresource, err)
		}
	}
}
