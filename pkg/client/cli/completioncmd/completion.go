package completioncmd

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

// Shells are those that a script can be written for.
var Shells = []string{"bash", "zsh", "fish", "powershell"}

// NewCmdCompletion makes `virtctl completion`.
func NewCmdCompletion(f *cli.Factory) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Write a shell's completion script",
		Long: `Write a completion script for a shell to stdout. It completes commands, flags and the names of machines and
namespaces in the cluster.

  bash        source <(virtctl completion bash)             in ~/.bashrc; needs the bash-completion package
  zsh         source <(virtctl completion zsh)              in ~/.zshrc, after compinit
  fish        virtctl completion fish | source              in ~/.config/fish/config.fish
  powershell  virtctl completion powershell | Out-String | Invoke-Expression   in $PROFILE

For "kubectl virt" put plugins/kubectl_complete-virt into your PATH; kubectl's own completion then does it.`,
		Example:   cli.Examples(f.Program, `virtctl completion bash > /etc/bash_completion.d/virtctl`),
		Args:      cli.Args(1, 1, "one of "+strings.Join(Shells, ", ")),
		ValidArgs: Shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(Shells, args[0]) {
				return cli.UsageErrorf("%q is not one of %s", args[0], strings.Join(Shells, ", "))
			}
			return Write(cmd.Root(), args[0], f.IO.RawOut())
		},
	}
}

// Write writes the script for a shell.
func Write(root *cobra.Command, shell string, w io.Writer) error {
	switch shell {
	case "bash":
		return root.GenBashCompletionV2(w, true)
	case "zsh":
		return root.GenZshCompletion(w)
	case "fish":
		return root.GenFishCompletion(w, true)
	case "powershell":
		return root.GenPowerShellCompletionWithDesc(w)
	}
	return fmt.Errorf("no completion for shell %q", shell)
}
