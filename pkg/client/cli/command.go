package cli

import (
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// Args limits a command's arguments. what names them for the message, as in `NAME...`.
func Args(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least && least == 1:
			return UsageErrorf("%s needs %s", cmd.CommandPath(), what)
		case len(args) < least:
			return UsageErrorf("%s needs %s, got %d of %d arguments", cmd.CommandPath(), what, len(args), least)
		case most >= 0 && len(args) > most && most == 0:
			return UsageErrorf("%s takes no arguments, got %q", cmd.CommandPath(), args[0])
		case most >= 0 && len(args) > most:
			return UsageErrorf("%s takes %s, got %d arguments", cmd.CommandPath(), what, len(args))
		}
		return nil
	}
}

// Group makes cmd a command that only holds others: it shows its help, and refuses words that are no
// command of its own with what may have been meant.
func Group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		if hint := foreignHint(cmd.CommandPath(), args[0]); hint != "" && !cmd.HasParent() {
			return UsageErrorf("unknown command %q for %q: %s", args[0], cmd.CommandPath(), hint)
		}
		if s := near(cmd, args[0]); len(s) > 0 {
			return UsageErrorf("unknown command %q for %q; did you mean %s?", args[0], cmd.CommandPath(),
				strings.Join(s, " or "))
		}
		return UsageErrorf("unknown command %q for %q", args[0], cmd.CommandPath())
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// called is where an example calls the program: at the start of a line or of a word's value, or as a word of its own.
var called = regexp.MustCompile(`(^|[ =])virtctl `)

// Examples indents a command's examples and says the program's name as the user knows it: every
// `virtctl` that is called becomes program. Comments stay.
func Examples(program, text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, line := range lines {
		line = strings.TrimLeft(line, "\t")
		if program != "virtctl" && !strings.HasPrefix(line, "#") {
			line = called.ReplaceAllString(line, "${1}"+program+" ")
		}
		if line != "" {
			line = "  " + line
		}
		lines[i] = line
	}
	return strings.Join(lines, "\n")
}
