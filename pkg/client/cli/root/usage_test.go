package root

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

// VIRTCTL_COMPAT=kubevirt gives KubeVirt's exit codes and errors.
func TestCompat(t *testing.T) {
	for _, tt := range []struct {
		compat, args, want string
		code               int
	}{
		{"", "list --zzz", "error: unknown flag: --zzz\nSee 'virtctl list --help'.\n", cli.ExitUsage},
		{"kubevirt", "list --zzz", "unknown flag: --zzz\nSee 'virtctl list --help'.\n", cli.ExitFailure},
		{
			"kubevirt", "help starte",
			"unknown command \"starte\" for \"virtctl\"; did you mean start?\nSee 'virtctl help --help'.\n",
			cli.ExitFailure,
		},
		{"kubevirt", "list --help", "", cli.ExitOK},
		{"other", "list --zzz", "error: unknown flag: --zzz\nSee 'virtctl list --help'.\n", cli.ExitUsage},
	} {
		var out, stderr bytes.Buffer
		streams := cli.NoStreams()
		streams.Out, streams.ErrOut = &out, &stderr
		f := cli.NewFactory("virtctl", streams, func(name string) string {
			if name == envCompat {
				return tt.compat
			}
			return ""
		})
		code := Run(context.Background(), f, strings.Fields(tt.args))
		if code != tt.code || stderr.String() != tt.want {
			t.Errorf("%q, %s: %d %q", tt.compat, tt.args, code, &stderr)
		}
	}
}

// testRun runs args against a tree with one command in it and returns the exit code and what went to stderr.
func testRun(args ...string) (code int, stderr string) {
	var out bytes.Buffer
	streams := cli.NoStreams()
	streams.Out, streams.ErrOut = &out, &out
	f := cli.NewFactory("virtctl", streams, func(string) string { return "" })
	root := NewCommand(f)
	cmd := &cobra.Command{Use: "try NAME -- COMMAND", RunE: func(*cobra.Command, []string) error { return nil }}
	cmd.Flags().Bool("left", false, "")
	cmd.Flags().Bool("right", false, "")
	cmd.Flags().String("must", "", "")
	cmd.MarkFlagsMutuallyExclusive("left", "right")
	if err := cmd.MarkFlagRequired("must"); err != nil {
		panic(err)
	}
	root.AddCommand(cmd)
	root.SetArgs(args)
	chosen, err := execute(context.Background(), root)
	if err != nil {
		report(f, chosen, err)
	}
	return cli.ExitCode(err), out.String()
}

func TestUsageErrors(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{
			[]string{"try", "--must=x", "--left", "--right"},
			"error: --left and --right exclude each other; give one of them\n",
		},
		{[]string{"try"}, `error: required flag(s) "must" not set` + "\n"},
		{
			[]string{"try", "--rihgt"},
			"error: unknown flag: --rihgt; did you mean --right?; if it is for the command in the guest, " +
				"put -- before that command\n",
		},
		{[]string{"list", "--watsh"}, "error: unknown flag: --watsh; did you mean --watch?\n"},
		{[]string{"list", "--zzzzzz"}, "error: unknown flag: --zzzzzz\n"},
		{
			[]string{"exec", "demo", "ls", "-l"},
			"error: unknown shorthand flag: 'l' in -l; if it is for the command in the guest, " +
				"put -- before that command\n",
		},
		{[]string{"help", "starte"}, `error: unknown command "starte" for "virtctl"; did you mean start?` + "\n"},
		{[]string{"starte", "--help"}, `error: unknown command "starte" for "virtctl"; did you mean start?` + "\n"},
		{
			[]string{"create", "-n", "shop", "vmm", "-h"},
			`error: unknown command "vmm" for "virtctl create"; did you mean vm?` + "\n",
		},
		{[]string{"create", "--help"}, ""},
		{[]string{"vnc", "demo", "--help"}, ""},
		{[]string{"help", "vnc", "screenshot", "more"}, ""},
	} {
		code, stderr := testRun(tt.args...)
		if tt.want == "" {
			if code != cli.ExitOK {
				t.Errorf("%q: exit code %d: %s", tt.args, code, stderr)
			}
			continue
		}
		if code != cli.ExitUsage || !strings.HasPrefix(stderr, tt.want) {
			t.Errorf("%q: exit code %d, stderr %q, want %d and %q", tt.args, code, stderr, cli.ExitUsage, tt.want)
		}
	}
}

func TestOptionsFitTheTerminal(t *testing.T) {
	f := cli.NewFactory("virtctl", cli.NoStreams(), func(string) string { return "" })
	cmd, _, err := NewCommand(f).Find([]string{"create", "vm"})
	if err != nil {
		t.Fatal(err)
	}
	for _, width := range []int{40, 80, 120} {
		var b bytes.Buffer
		writeFlags(&b, cmd.Flags(), width)
		for line := range strings.Lines(b.String()) {
			words := strings.Fields(line)
			if utf8.RuneCountInString(strings.TrimRight(line, "\n")) > width && len(words) > 1 &&
				!strings.HasPrefix(words[0], "-") {
				t.Errorf("width %d: %q is longer", width, line)
			}
		}
	}
}

func TestOptionsLayout(t *testing.T) {
	cmd := &cobra.Command{Use: "x"}
	flags := cmd.Flags()
	flags.StringP("output", "o", "", "Output `FORMAT`: json, yaml")
	flags.String("dry-run", "none", "What `HOW` to do")
	flags.Lookup("dry-run").NoOptDefVal = "server"
	flags.StringArray("address", []string{"127.0.0.1"}, "`ADDRESS` to listen on, where others find it")
	flags.String("a-name-that-is-very-much-too-long", "", "Its `VALUE`")
	flags.Bool("yes", false, "Do not ask")
	var b bytes.Buffer
	writeFlags(&b, flags, 60)
	want := `      --a-name-that-is-very-much-too-long VALUE
                          Its VALUE
      --address ADDRESS   ADDRESS to listen on, where others
                          find it (default 127.0.0.1)
      --dry-run[=HOW]     What HOW to do (default none)
  -o, --output FORMAT     Output FORMAT: json, yaml
      --yes               Do not ask
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestUsageLine(t *testing.T) {
	for use, want := range map[string]string{
		"exec NAME [-i] -- COMMAND [ARGUMENT...]": "exec NAME [-i] [options] -- COMMAND [ARGUMENT...]",
		"ssh [USER@]NAME [-- COMMAND...]":         "ssh [USER@]NAME [options] [-- COMMAND...]",
		"start NAME...":                           "start NAME... [options]",
	} {
		if got := UsageLine(&cobra.Command{Use: use, DisableFlagsInUseLine: true}); got != want {
			t.Errorf("%q: got %q, want %q", use, got, want)
		}
	}
}

// TestHelpIsNarrow renders the help of every command: no line is longer than 120 columns, however wide the terminal.
func TestHelpIsNarrow(t *testing.T) {
	const widest = 120
	helped := 0
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		var out bytes.Buffer
		cmd.SetOut(&out)
		help(cmd, widest)
		for line := range strings.Lines(out.String()) {
			line = strings.TrimSuffix(line, "\n")
			if columns := utf8.RuneCountInString(line); columns > widest {
				t.Errorf("%s --help has a line of %d columns: %s", cmd.CommandPath(), columns, line)
			}
			helped++
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(NewCommand(cli.NewFactory("virtctl", cli.NoStreams(), func(string) string { return "" })))
	if helped < 1000 {
		t.Errorf("only %d lines were looked at", helped)
	}
}

// TestPlainNumber has no word of Go's in an error about a flag's value.
func TestPlainNumber(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`strconv.ParseInt: parsing "x": invalid syntax`:          `"x" is not a whole number`,
		`strconv.ParseUint: parsing "99999": value out of range`: `"99999" is out of range`,
		`strconv.ParseBool: parsing "maybe": invalid syntax`:     `"maybe" is neither true nor false`,
	} {
		if got := plainNumber("flag: " + text); got != "flag: "+want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}
