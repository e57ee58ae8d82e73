package root

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

// The help is written by code rather than by cobra's templates: global flags stay out of it, as in kubectl, and
// the binary starts without the template engine's work.

func help(cmd *cobra.Command, width int) {
	if unknown(cmd) != nil {
		return // execute says so
	}
	text := cmd.Long
	if text == "" {
		text = cmd.Short
	}
	out := cmd.OutOrStdout()
	if text = strings.TrimSpace(text); text != "" {
		fmt.Fprintf(out, "%s\n\n", text)
	}
	writeUsage(out, cmd, width)
}

// unknown returns an error if cmd, which only holds other commands, was given a word that is none of them.
func unknown(cmd *cobra.Command) error {
	if !cmd.HasAvailableSubCommands() || actsItself(cmd) {
		return nil
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// actsItself reports whether a command that holds others does something of its own too.
func actsItself(cmd *cobra.Command) bool { return strings.Contains(cmd.Use, " ") }

func writeUsage(w io.Writer, cmd *cobra.Command, width int) {
	if cmd.HasExample() {
		fmt.Fprintf(w, "Examples:\n%s\n\n", strings.TrimRight(cmd.Example, " \n"))
	}
	writeCommands(w, cmd)
	if flag := cmd.Flags().Lookup("help"); flag != nil {
		flag.Usage = "Show this help"
	}
	if flags := cmd.LocalNonPersistentFlags(); flags.HasAvailableFlags() {
		flags.SortFlags = cmd.Flags().SortFlags
		fmt.Fprintf(w, "Options:\n")
		writeFlags(w, flags, width)
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "Usage:\n")
	if cmd.HasAvailableSubCommands() {
		if actsItself(cmd) {
			fmt.Fprintf(w, "  %s\n", UsageLine(cmd))
		}
		fmt.Fprintf(w, "  %s COMMAND [options]\n\n", cmd.CommandPath())
		fmt.Fprintf(w, "Use \"%s COMMAND --help\" for more about a command.\n", cmd.CommandPath())
	} else {
		fmt.Fprintf(w, "  %s\n\n", UsageLine(cmd))
	}
	fmt.Fprintf(w, "Use \"%s options\" for the options that all commands take.\n", cmd.Root().CommandPath())
}

// helpWidth returns the terminal's width, as far as lines stay readable, or a usual one where there is no terminal.
func helpWidth(streams *cli.IOStreams) int {
	if width := streams.Width(); width > 0 {
		return min(width, 120)
	}
	return 100
}

func writeCommands(w io.Writer, cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	section := func(title, group string) {
		var lines []string
		for _, sub := range cmd.Commands() {
			if sub.GroupID == group && sub.IsAvailableCommand() {
				lines = append(lines, fmt.Sprintf("  %-*s  %s\n", sub.NamePadding(), sub.Name(), sub.Short))
			}
		}
		if len(lines) > 0 {
			fmt.Fprintf(w, "%s\n%s\n", title, strings.Join(lines, ""))
		}
	}
	for _, g := range cmd.Groups() {
		section(g.Title, g.ID)
	}
	section("Commands:", "")
}

// newCmdOptions lists the global flags, as `kubectl options` does.
func newCmdOptions(f *cli.Factory) *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "List the options that all commands take",
		Args:  cli.Args(0, 0, "no arguments"),
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprint(cmd.OutOrStdout(), "These options can be given to any command:\n\n")
			writeFlags(cmd.OutOrStdout(), cmd.Root().PersistentFlags(), helpWidth(f.IO))
		},
	}
}
