package admcmd

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

// read reads a command line as the command does, without a cluster.
func read(line string) (*wish, error) {
	o := &Options{Output: cli.NewNameless(), Components: map[string]*string{}}
	cmd := newCommand(cli.NewFactory("virtctl", cli.NoStreams(), func(string) string { return "" }), o)
	if err := cmd.ParseFlags(strings.Fields(line)); err != nil {
		return nil, err
	}
	return o.wish()
}

// TestWish has what the flags ask for.
func TestWish(t *testing.T) {
	const every = "show virt-api, virt-controller, virt-handler, virt-launcher, virt-operator"
	for line, want := range map[string]string{
		"--virt-api":                "show virt-api",
		"--virt-handler --virt-api": "show virt-api, virt-handler",
		"--all":                     every,
		"--vm=demo":                 "show VMs demo",
		"--all --vm=a,b":            every + " VMs a, b",
		"--virt-api=0":              "set virt-api=0",
		"--all=3 --virt-handler=7": "set virt-api=3, virt-controller=3, virt-handler=7, virt-launcher=3, " +
			"virt-operator=3",
		"--reset":                            "reset",
		"--reset --virt-api=5":               "reset set virt-api=5",
		"--reset=demo":                       "VM demo reset",
		"--vm=a --vm=b --level=1 --level=9":  "VM a=1 VM b=9",
		"--vm=a,b --level=1,9 --reset=c":     "VM c reset VM a=1 VM b=9",
		"--reset=all":                        "reset",
		"--reset=all,demo --virt-launcher=4": "reset set virt-launcher=4 VM demo reset",
		"":                                   "error: no flag specified - expecting at least one flag, such as --all",
		"--level=3":                          "error: there are 0 --vm and 1 --level; give a level for each VM",
		"--vm=a --level=3 --level=4":         "error: there are 1 --vm and 2 --level; give a level for each VM",
		"--vm=a,b --level=3":                 "error: there are 2 --vm and 1 --level; give a level for each VM",
		"--vm=a --level=10":                  `error: a: log verbosity must be 0-9, not "10"`,
		"--virt-api=-1":                      `error: virt-api: log verbosity must be 0-9, not "-1"`,
		"--virt-api=high":                    `error: virt-api: log verbosity must be 0-9, not "high"`,
		"--virt-api=":                        "error: no flag specified - expecting at least one flag, such as --all",
		"--virt-api --virt-handler=3":        "error: show levels or set them, not both",
		"--all --reset":                      "error: show levels or set them, not both",
		"--vm=a --virt-api=3":                "error: show levels or set them, not both",
		"--virt-api --reset=demo":            "error: show levels or set them, not both",
		"--virt-api=256":                     `error: virt-api: log verbosity must be 0-9, not "256"`,
	} {
		w, err := read(line)
		if got := text(w, err, line); got != want {
			t.Errorf("%q: %s; want %s", line, got, want)
		}
		if usage := (*cli.UsageError)(nil); err != nil && !errors.As(err, &usage) {
			t.Errorf("%q: %v is no wrong usage", line, err)
		}
	}
}

// text says what a wish is.
func text(w *wish, err error, line string) string {
	if err != nil {
		return "error: " + err.Error()
	}
	var out []string
	if !w.sets() {
		shown := "show " + strings.Join(w.shown, ", ")
		for word := range strings.FieldsSeq(line) {
			if vms, ok := strings.CutPrefix(word, "--vm="); ok {
				shown += " VMs " + strings.ReplaceAll(vms, ",", ", ")
			}
		}
		return strings.Join(strings.Fields(shown), " ")
	}
	if w.change.Reset {
		out = append(out, "reset")
	}
	var set []string
	for name, level := range w.change.Set {
		set = append(set, fmt.Sprintf("%s=%d", name, level))
	}
	slices.Sort(set)
	if len(set) > 0 {
		out = append(out, "set "+strings.Join(set, ", "))
	}
	for _, name := range w.order {
		if level := w.levels[name]; level != nil {
			out = append(out, fmt.Sprintf("VM %s=%d", name, *level))
		} else {
			out = append(out, "VM "+name+" reset")
		}
	}
	return strings.Join(out, " ")
}
