package root

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

// flagError makes an error of pflag's a usage error. An unknown flag comes with the one that may have been meant and,
// where the command runs another in the guest, with how to give it that flag. A command that there is not has no flags:
// it is what is wrong.
func flagError(cmd *cobra.Command, err error) error {
	if before := cmd.Flags().Args(); cmd.HasSubCommands() && len(before) > 0 { // as in `get -o wide`
		if unknown := cmd.ValidateArgs(before); unknown != nil {
			return unknown
		}
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return cli.UsageErrorf("%s", plainNumber(err.Error()))
	}
	message := err.Error()
	if like := flagsLike(cmd, unknown.GetSpecifiedName()); unknown.GetSpecifiedShortnames() == "" && len(like) > 0 {
		message += "; did you mean " + strings.Join(like, " or ") + "?"
	}
	if strings.Contains(cmd.Use, "-- COMMAND") {
		message += "; if it is for the command in the guest, put -- before that command"
	}
	return cli.UsageErrorf("%s", message)
}

// strconvs is how Go says that a text is no number, or a number too large.
var strconvs = regexp.MustCompile(`strconv\.Parse(\w+): parsing ("(?:[^"\\]|\\.)*"): (invalid syntax|value out of range)`)

// plainNumber replaces Go's words in an error about a flag's value that is no number, or no truth value, by plain ones.
func plainNumber(text string) string {
	return strconvs.ReplaceAllStringFunc(text, func(found string) string {
		parts := strconvs.FindStringSubmatch(found)
		switch {
		case parts[1] == "Bool":
			return parts[2] + " is neither true nor false"
		case parts[3] == "invalid syntax":
			return parts[2] + " is not a whole number"
		}
		return parts[2] + " is out of range"
	})
}

// flagsLike returns those of cmd's flags, with their dashes, whose names are near to name: at most two letters from it,
// or beginning with it.
func flagsLike(cmd *cobra.Command, name string) []string {
	var like []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" {
			return
		}
		if len(name) > 1 && strings.HasPrefix(f.Name, name) || cli.Distance(name, f.Name) <= min(2, len(name)/2) {
			like = append(like, "--"+f.Name)
		}
	})
	if len(like) > 3 {
		return nil
	}
	return like
}

var exclusive = regexp.MustCompile(
	`^if any flags in the group \[.*\] are set none of the others can be; \[(.*)\] were all set$`,
)

// checkFlags does what cobra does next by itself, but says of flags that are missing or contradict each other that the
// command line is wrong.
func checkFlags(cmd *cobra.Command) error {
	if err := cmd.ValidateRequiredFlags(); err != nil {
		return cli.UsageErrorf("%s", err)
	}
	err := cmd.ValidateFlagGroups()
	if err == nil {
		return nil
	}
	if m := exclusive.FindStringSubmatch(err.Error()); m != nil {
		flags := strings.Fields(m[1])
		for i := range flags {
			flags[i] = "--" + flags[i]
		}
		last := len(flags) - 1
		return cli.UsageErrorf("%s and %s exclude each other; give one of them", strings.Join(flags[:last], ", "),
			flags[last])
	}
	return cli.UsageErrorf("%s", err)
}

// newCmdHelp returns `virtctl help COMMAND`. Unlike cobra's own it refuses a command that does not exist.
func newCmdHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show the help of a command",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			target, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, sub := range target.Commands() {
				if sub.IsAvailableCommand() && strings.HasPrefix(sub.Name(), begun) {
					names = append(names, sub.Name()+"\t"+sub.Short)
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			target, rest, err := cmd.Root().Find(args)
			if err != nil {
				return cli.UsageErrorf("%s", err)
			}
			if len(rest) > 0 && target.HasSubCommands() {
				if err := target.ValidateArgs(rest); err != nil {
					return err
				}
			}
			target.InitDefaultHelpFlag()
			if err := target.Help(); err != nil {
				return fmt.Errorf("write the help: %w", err)
			}
			return nil
		},
	}
}
