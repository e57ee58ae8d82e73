package backupcmd

import (
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

// Files of other formats, which a backup is not, are refused before anything is done, with the command that writes
// them.
func TestOtherFormats(t *testing.T) {
	for line, want := range map[string]string{
		"demo demo.OVA":      "`virtctl vmexport download demo --vm=demo --format=ova --output=demo.OVA` writes one",
		"snapshot/s a/b.ova": "`virtctl vmexport download s --snapshot=s --format=ova --output=a/b.ova`",
		"demo root.qcow2":    "vmexport download demo --vm=demo --format=qcow2 --output=root.qcow2 --volume=CLAIM",
		"demo -":             "a backup cannot be written to a pipe",
	} {
		cmd := NewCmdExport(cli.NewFactory("virtctl", cli.NoStreams(), func(string) string { return "" }))
		cmd.SetArgs(strings.Fields(line))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err := cmd.ExecuteContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || cli.ExitCode(err) != cli.ExitUsage {
			t.Errorf("%s: %v", line, err)
		}
	}
}
