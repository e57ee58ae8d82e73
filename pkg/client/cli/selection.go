package cli

import (
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
)

// Selection is how a user chooses a command's machines other than by their names: -l, --all, -A. Yes is --yes.
type Selection struct {
	Selector      string
	All           bool
	AllNamespaces bool
	Yes           bool
}

// AddFlags registers the flags.
func (s *Selection) AddFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&s.Selector, "selector", "l", "", "Choose by a label `SELECTOR`, as in -l app=web,tier!=db")
	flags.BoolVar(&s.All, "all", false, "Choose all machines of the namespace")
	flags.BoolVarP(&s.AllNamespaces, "all-namespaces", "A", false, "With -l or --all: choose in every namespace")
	flags.BoolVarP(&s.Yes, "yes", "y", false, "Do not ask")
}

// Given reports whether machines are chosen by a rule rather than by names.
func (s *Selection) Given() bool { return s.Selector != "" || s.All }

// Validate holds the flags against the names that were given.
func (s *Selection) Validate(cmd *cobra.Command, names []string) error {
	switch {
	case s.Given() && len(names) > 0:
		return UsageErrorf("give names, or -l or --all, not both")
	case s.Selector != "" && s.All:
		return UsageErrorf("give -l or --all, not both")
	case s.AllNamespaces && !s.Given():
		return UsageErrorf("-A needs -l SELECTOR or --all")
	case !s.Given() && len(names) == 0:
		return UsageErrorf("%s needs the name of a VM, -l SELECTOR or --all", cmd.CommandPath())
	}
	return CheckSelector(s.Selector)
}

// CheckSelector returns a usage error if the value of -l is no label selector.
func CheckSelector(text string) error {
	if _, err := labels.Parse(text); err != nil {
		return UsageErrorf("-l: %s", err)
	}
	return nil
}
