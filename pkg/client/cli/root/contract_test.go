package root

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

// verbs are all commands that do something, by what follows virtctl.
func verbs() map[string]*cobra.Command {
	out := map[string]*cobra.Command{}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
		// A group runs too, to say which commands it has.
		if cmd.Runnable() && (!cmd.HasSubCommands() || cmd.Flags().Lookup("output") != nil) {
			_, name, _ := strings.Cut(cmd.CommandPath(), " ")
			out[name] = cmd
		}
	}
	visit(NewCommand(cli.NewFactory("virtctl", cli.NoStreams(), func(string) string { return "" })))
	return out
}

// check that each verb has a flag, or is excepted, and that no exception is left over.
func check(t *testing.T, flag string, exceptions map[string]string) {
	t.Helper()
	all := verbs()
	for name, cmd := range all {
		has := cmd.Flags().Lookup(flag) != nil
		why, excepted := exceptions[name]
		switch {
		case !has && !excepted:
			t.Errorf("virtctl %s has no --%s; give it one, or say here why not", name, flag)
		case has && excepted:
			t.Errorf("virtctl %s has --%s although %q", name, flag, why)
		}
	}
	for name := range exceptions {
		if all[name] == nil {
			t.Errorf("there is no virtctl %s that could be an exception to --%s", name, flag)
		}
	}
}

func TestEveryVerbHasOutput(t *testing.T) {
	const (
		stream = "its output is the guest's, byte for byte"
		text   = "it prints text for a shell or a reader"
	)
	check(t, "output", map[string]string{
		"guestfs": "its output is that of the programs in the pod, byte for byte",
		"console": stream, "ssh": stream, "scp": "it copies files; their contents are its result", "logs": stream,
		"completion": text, "options": text,
	})
}

func TestEveryVerbThatChangesTheClusterHasDryRun(t *testing.T) {
	const (
		reads = "it changes nothing in the cluster"
		guest = "what it does is the guest's to undo, and cannot be tried without doing it"
		dumps = "KubeVirt's requests for memory dumps have none"
	)
	check(t, "dry-run", map[string]string{
		"completion": reads, "console": guest, "cp": guest, "dashboard": "it asks before each action that disrupts",
		"describe": reads, "diff": "it is a dry run", "doctor": reads, "events": reads, "exec": guest,
		"expand": reads, "expect": guest, "firewall show": reads, "fslist": reads, "guestosinfo": reads, "list": reads,
		"logs":         reads,
		"guestfs":      "KubeVirt's has none, and what is done to the disk cannot be tried without doing it",
		"image-upload": "KubeVirt's has none, and an image that would be refused is not sent",
		"image pull":   "what is there already is said before anything is downloaded or made",
		"image import": "an image that would be refused is not sent", "image list": reads, "image show": reads,
		"image add":            "it changes a file of this machine",
		"memory-dump download": "the export that it makes is there for the download and goes with it",
		"memory-dump get":      dumps, "memory-dump remove": dumps, "objectgraph": reads, "options": reads,
		"permitted-devices": reads, "template convert": reads,
		"port-forward": reads, "port-forward list": reads, "port-forward stop": "it ends a process of this machine",
		"scp": guest, "snapshot list": reads, "snapshot show": reads, "ssh": guest, "top": reads, "usbredir": guest,
		"userlist": reads, "version": reads, "vnc": guest, "vnc screenshot": reads,
		"wait": reads, "why": reads,
		"vmexport download": "the export that it makes is there for the download and goes with it",
		"export":            "what it makes is there for the file, and is deleted",
	})
}

func TestFlagsMeanTheSameEverywhere(t *testing.T) {
	for name, cmd := range verbs() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Deprecated != "" {
				return
			}
			kind, letter := f.Value.Type(), f.Shorthand
			wrong := func(want string) {
				t.Errorf("virtctl %s: --%s has type %s, shorthand %q, default %q; want %s", name, f.Name, kind, letter,
					f.DefValue, want)
			}
			switch f.Name {
			case "output":
				if letter != "o" || kind != "string" {
					wrong("-o, string")
				}
			case "dry-run":
				if kind != "none|client|server" || f.DefValue != "none" || f.NoOptDefVal != "server" {
					wrong("cli.DryRun")
				}
			case "timeout", "connect-timeout", "idle", "since":
				if kind != "duration" {
					wrong("a duration")
				}
			case "wait":
				// port-forward waits for a guest by itself, and its flag says how long.
				if kind == "bool" && cmd.Flags().Lookup("timeout") == nil {
					t.Errorf("virtctl %s has --wait without --timeout", name)
				}
				if kind != "bool" && kind != "duration" {
					wrong("a switch or a duration")
				}
			case "yes":
				if kind != "bool" || letter != "y" {
					wrong("-y, bool")
				}
			case "selector":
				// KubeVirt's objectgraph has a map, and no letter.
				if letter != "l" && name != "objectgraph" {
					wrong("-l")
				}
			case "all-namespaces":
				if letter != "A" || kind != "bool" {
					wrong("-A, bool")
				}
			case "watch":
				if letter != "w" || kind != "bool" {
					wrong("-w, bool")
				}
			case "follow":
				if letter != "f" || kind != "bool" {
					wrong("-f, bool")
				}
			case "filename":
				if letter != "f" {
					wrong("-f")
				}
			}
		})
	}
}

func TestEveryVerbIsDescribed(t *testing.T) {
	for name, cmd := range verbs() {
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("virtctl %s: one line without a full stop says what it does, not %q", name, cmd.Short)
		}
		if cmd.Long == "" && cmd.Example == "" && name != "options" {
			t.Errorf("virtctl %s lacks a description and an example", name)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" || strings.HasSuffix(f.Usage, ".") {
				t.Errorf("virtctl %s: --%s is to say what it does, without a full stop: %q", name, f.Name, f.Usage)
			}
		})
		_, arguments, _ := strings.Cut(cmd.Use, " ")
		named := arguments != "" && !strings.HasPrefix(arguments, "-") && !strings.HasPrefix(arguments, "(-") &&
			arguments != "[flags]"
		if named && cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 {
			t.Errorf("virtctl %s: nothing completes its arguments", cmd.Use)
		}
	}
}
