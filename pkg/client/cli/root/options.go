package root

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// What an option means begins in the column after the longest name, but not further right than this: a longer name
// has a line of its own.
const nameColumn = 36

// writeFlags lists flags, what they mean wrapped to width columns.
func writeFlags(w io.Writer, flags *pflag.FlagSet, width int) {
	type row struct{ name, text string }
	var rows []row
	column := 0
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" {
			return
		}
		r := row{flagName(f), flagText(f)}
		if n := utf8.RuneCountInString(r.name) + 3; n <= nameColumn {
			column = max(column, n)
		}
		rows = append(rows, r)
	})
	if column == 0 {
		column = nameColumn / 2
	}
	if width < column+24 { // too narrow for two columns
		column = 8
	}
	margin := strings.Repeat(" ", column)
	for _, r := range rows {
		lines := wrap(r.text, width-column)
		if n := utf8.RuneCountInString(r.name); n+2 < column {
			fmt.Fprintf(w, "%s%s%s\n", r.name, margin[n:], lines[0])
			lines = lines[1:]
		} else {
			fmt.Fprintln(w, r.name)
		}
		for _, line := range lines {
			fmt.Fprintf(w, "%s%s\n", margin, line)
		}
	}
}

// flagName returns "  -o, --output FORMAT", with the value in brackets where it may be left out.
func flagName(f *pflag.Flag) string {
	name := "      --" + f.Name
	if f.Shorthand != "" && f.ShorthandDeprecated == "" {
		name = fmt.Sprintf("  -%s, --%s", f.Shorthand, f.Name)
	}
	value, _ := pflag.UnquoteUsage(f)
	switch {
	case value == "":
		return name
	case f.NoOptDefVal != "":
		return name + "[=" + value + "]"
	}
	return name + " " + value
}

// flagText returns what the flag means, and its default where it has one.
func flagText(f *pflag.Flag) string {
	_, text := pflag.UnquoteUsage(f)
	switch f.DefValue {
	case "", "[]", "0", "false":
		return text
	}
	if f.DefValue == "0s" && f.Value.Type() == "duration" {
		return text
	}
	return fmt.Sprintf("%s (default %s)", text, strings.Trim(f.DefValue, "[]"))
}

// wrap breaks text into lines of at most width columns, where it has spaces. Lines of its own keep their indent.
func wrap(text string, width int) []string {
	var lines []string
	for paragraph := range strings.SplitSeq(text, "\n") {
		indent := paragraph[:len(paragraph)-len(strings.TrimLeft(paragraph, " "))]
		line := indent
		for i, word := range strings.Fields(paragraph) {
			if i > 0 && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
				lines = append(lines, line)
				line = indent
			} else if i > 0 {
				line += " "
			}
			line += word
		}
		lines = append(lines, line)
	}
	return lines
}

// UsageLine returns how a command is called, with where its options go: before a command for the guest, as all after
// that is the guest's.
func UsageLine(cmd *cobra.Command) string {
	line := strings.TrimSuffix(cmd.UseLine(), " [flags]")
	for _, stop := range []string{" -- COMMAND", " [-- COMMAND"} {
		if before, after, found := strings.Cut(line, stop); found {
			return before + " [options]" + stop + after
		}
	}
	return line + " [options]"
}
