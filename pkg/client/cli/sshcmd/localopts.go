package sshcmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// localOpts is the flag --local-ssh-opts, -t. KubeVirt's -t takes an option for ssh, ssh's own takes none and asks for
// a terminal. Both are meant here: what follows and is no option is given back to the arguments.
type localOpts struct {
	o      *Options
	cmd    *cobra.Command
	strays []stray
}

// stray is an argument that was taken for -t's value, and how many arguments came before it.
type stray struct {
	word string
	at   int
}

// ours are flags that need a value of their own, so that they are no option for ssh alone.
var ours = []string{"-c", "-i", "-l", "-p", "-L", "-R", "-D", "-N", "-n", "-s", "-v"}

// String implements pflag.Value.
func (l *localOpts) String() string { return "" }

// Type implements pflag.Value.
func (*localOpts) Type() string { return "option" }

// Set implements pflag.Value.
func (l *localOpts) Set(text string) error {
	switch {
	case text == "t": // -tt
		l.o.Terminal = true
	case !strings.HasPrefix(text, "-"):
		l.o.Asked = true
		l.strays = append(l.strays, stray{text, l.cmd.Flags().NArg()})
	case slices.Contains(ours, text), strings.HasPrefix(text, "--"):
		return fmt.Errorf("%s follows it: put -t right before the name, or use --tty", text)
	default:
		l.o.LocalOpts = append(l.o.LocalOpts, text)
	}
	return nil
}
