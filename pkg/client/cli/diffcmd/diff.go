// Package diffcmd is `virtctl diff`.
package diffcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action/diff"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/vm/rollout"
)

// Options of the command.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output
	Files   []string

	ServerSide     bool
	ForceConflicts bool
	FieldManager   string
}

// Exit codes, kubectl diff's.
const (
	exitDiffers = 1
	exitFailure = 2
)

// NewCmdDiff makes the command.
func NewCmdDiff(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewNameless()}
	cmd := &cobra.Command{
		Use:   "diff -f FILE...",
		Short: "Show what applying a manifest would do to virtual machines",
		Long: `Show which fields of virtual machines applying a manifest would change, and when each takes effect:

  live        at once
  hotplug     at once, by plugging a device
  migration   when the guest has moved to another node
  restart     when the guest, which runs, has been stopped and started again
  start       when the guest, which does not run, is started

The server is asked in a dry run: defaults count, and what it would reject is an error. Objects of other kinds are
left out; kubectl diff has them. Exit codes are kubectl diff's: 0 no difference, 1 differences, more an error.`,
		Example: cli.Examples(f.Program, `
			virtctl diff -f vm.yaml
			kustomize build . | virtctl diff -f -
			virtctl diff -f vm.yaml -o jsonpath='{.objects[*].changes[?(@.effect=="restart")].path}'`),
		Args: cli.Args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return Run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVarP(&o.Files, "filename", "f", nil,
		"Manifest `FILE`s, or directories of .yaml, .yml and .json files; - is stdin")
	flags.BoolVar(&o.ServerSide, "server-side", false, "As kubectl apply --server-side would")
	flags.BoolVar(&o.ForceConflicts, "force-conflicts", false,
		"With --server-side: also fields that another manager has set")
	flags.StringVar(&o.FieldManager, "field-manager", "kubectl",
		"`NAME` under which --server-side would set the fields")
	o.Output.AddFlags(cmd)
	return cmd
}

// Run compares and prints. Its error is an *ExitError also where the objects differ.
func Run(ctx context.Context, o *Options) error {
	report, err := o.compare(ctx)
	if err != nil {
		if code := cli.ExitCode(err); code == cli.ExitFailure {
			return &cli.ExitError{Code: exitFailure, Err: err}
		}
		return err
	}
	if len(report.Objects) == 0 {
		fmt.Fprintf(o.Factory.IO.ErrOut, "note: %s: there is no virtual machine in it, so nothing was compared; "+
			"kubectl diff compares other objects\n", o.names())
	}
	if o.Output.Given() {
		err = o.Output.Print(report, o.Factory.IO.Out)
	} else {
		err = o.print(report)
	}
	if err != nil {
		return &cli.ExitError{Code: exitFailure, Err: err}
	}
	if report.Differs() {
		return &cli.ExitError{Code: exitDiffers}
	}
	return nil
}

func (o *Options) compare(ctx context.Context) (*diff.Report, error) {
	if err := o.Output.Validate(); err != nil {
		return nil, err
	}
	if len(o.Files) == 0 {
		return nil, cli.UsageErrorf("-f is missing; it names a manifest, - is stdin")
	}
	if o.ForceConflicts && !o.ServerSide {
		return nil, cli.UsageErrorf("--force-conflicts needs --server-side")
	}
	var objects []map[string]any
	for _, name := range o.Files {
		found, err := o.read(name)
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
	}
	c, ns, err := o.Factory.Scope()
	if err != nil {
		return nil, err
	}
	return diff.Diff(ctx, c, objects, diff.Options{
		Namespace: ns, ServerSide: o.ServerSide, FieldManager: o.FieldManager, ForceConflicts: o.ForceConflicts,
	})
}

// names returns the names of the files, for a sentence.
func (o *Options) names() string {
	names := slices.Clone(o.Files)
	for i, name := range names {
		if name == "-" {
			names[i] = "stdin"
		}
	}
	return strings.Join(names, ", ")
}

// read reads a file, stdin, or the manifests of a directory.
func (o *Options) read(name string) ([]map[string]any, error) {
	if name == "-" {
		return parse("stdin", o.Factory.IO.In)
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, cli.Unreadable("-f", name, err)
	}
	names := []string{name}
	if info.IsDir() {
		entries, err := os.ReadDir(name)
		if err != nil {
			return nil, cli.Unreadable("-f", name, err)
		}
		names = nil
		for _, e := range entries {
			if !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
				names = append(names, filepath.Join(name, e.Name()))
			}
		}
	}
	var out []map[string]any
	for _, name := range names {
		file, err := cli.OpenFile(nil, "-f", name)
		if err != nil {
			return nil, err
		}
		found, err := parse(name, file)
		file.Close()
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

func parse(name string, r io.Reader) ([]map[string]any, error) {
	objects, err := diff.Read(r)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return objects, nil
}

// print writes the report as text: a heading for each machine that differs, a line for each field.
func (o *Options) print(report *diff.Report) error {
	if o.Factory.IO.ErrIsTTY {
		for _, s := range report.Skipped {
			fmt.Fprintf(o.Factory.IO.ErrOut, "note: %s %s: not compared; kubectl diff does\n", s.Kind, s.Name)
		}
	}
	w := cli.NewTable(o.Factory.IO.Out)
	for _, object := range report.Objects {
		state := "not running"
		if object.Running {
			state = "running"
		}
		switch {
		case !object.Exists:
			w.Row(fmt.Sprintf("%s %s/%s would be created", object.Kind, object.Namespace, object.Name))
		case len(object.Changes) > 0:
			w.Row(fmt.Sprintf("%s %s/%s, %s", object.Kind, object.Namespace, object.Name, state))
		}
		rows(w, object.Changes)
	}
	return w.Flush()
}

// rows writes a line for each field.
func rows(w *cli.Table, changes []diff.Change) {
	for _, c := range changes {
		cells := []string{"  " + string(c.Effect), c.Path, value(c.Before) + " → " + value(c.After)}
		if c.Note != "" {
			cells = append(cells, c.Note)
		}
		w.Row(cells...)
	}
}

// WriteChanges writes a line for each field, as `virtctl diff` does.
func WriteChanges(out io.Writer, changes []diff.Change) error {
	w := cli.NewTable(out)
	rows(w, changes)
	return w.Flush()
}

// HintRestart prints at a terminal how a machine gets those changes that take effect when its guest is started again.
func HintRestart(f *cli.Factory, of cli.Target, changes []diff.Change) {
	waits := slices.ContainsFunc(changes, func(c diff.Change) bool { return c.Effect == rollout.Restart })
	if waits && f.IO.ErrIsTTY {
		fmt.Fprintf(f.IO.ErrOut, "What says %s waits for: %s restart %s%s\n", rollout.Restart, f.Program, of.Name,
			f.InNamespace(of.Namespace))
	}
}

// maxValue is how much of a value a line shows, characters.
const maxValue = 60

// value returns a field's value on one line.
func value(v any) string {
	if v == nil {
		return "<none>"
	}
	if text, ok := v.(string); ok && text != "" {
		data, err := json.Marshal(text)
		if err == nil && string(data) == `"`+text+`"` {
			return short(text)
		}
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return short(string(data))
}

func short(text string) string {
	if runes := []rune(text); len(runes) > maxValue {
		return string(runes[:maxValue-1]) + "…"
	}
	return text
}
