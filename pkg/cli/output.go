package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/virtkit/virtkit/pkg/action/client"
)

// Output is a command's -o flag: json, yaml, name, jsonpath=…, go-template=… and custom-columns=… with
// kubectl's meaning, and formats of the command's own such as wide.
type Output struct {
	Format string

	flags *genericclioptions.PrintFlags
	own   []string
}

// NewOutput returns the flag's value for a verb that has done operation ("created", or "" when it only
// reads). own are formats that the command prints itself.
func NewOutput(operation string, own ...string) *Output {
	o := &Output{own: own}
	o.flags = genericclioptions.NewPrintFlags(operation)
	o.flags.OutputFormat = &o.Format
	return o
}

// AddFlags registers -o, --template and what belongs to them.
func (o *Output) AddFlags(cmd *cobra.Command) {
	// cli-runtime would list its formats only.
	o.flags.OutputFormat = nil
	o.flags.AddFlags(cmd)
	o.flags.OutputFormat = &o.Format
	cmd.Flags().StringVarP(&o.Format, "output", "o", o.Format, "Output `FORMAT`: "+strings.Join(o.formats(), ", "))
	cmd.Flags().Lookup("template").Usage = "Template, or path to its file, for -o go-template and -o go-template-file; a Go `TEMPLATE`"
	cmd.Flags().Lookup("allow-missing-template-keys").Usage = "Print nothing for a field that a template or jsonpath names and the object lacks"
	cmd.Flags().Lookup("show-managed-fields").Usage = "Keep managedFields in JSON and YAML"
	o.flags.OutputFlagSpecified = func() bool { return cmd.Flags().Changed("output") }
	// The error can only be an unknown flag name.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(o.completions(), cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
}

func (o *Output) formats() []string {
	return append(append([]string{}, o.own...), "json", "yaml", "name", "jsonpath=…", "jsonpath-file=…", "go-template=…", "go-template-file=…", "custom-columns=…")
}

func (o *Output) completions() []string {
	out := o.formats()
	for i := range out {
		out[i] = strings.TrimSuffix(out[i], "…")
	}
	return out
}

// Given reports whether the user chose a format that prints objects, rather than none or one of the
// command's own.
func (o *Output) Given() bool {
	if o.flags.TemplatePrinterFlags.TemplateArgument != nil && *o.flags.TemplatePrinterFlags.TemplateArgument != "" && o.Format == "" {
		return true
	}
	return o.Format != "" && !o.isOwn()
}

func (o *Output) isOwn() bool {
	for _, f := range o.own {
		if f == o.Format {
			return true
		}
	}
	return false
}

// Validate refuses an unknown format before anything is done.
func (o *Output) Validate() error {
	if !o.Given() {
		return nil
	}
	_, err := o.printer()
	return err
}

type printer interface {
	PrintObj(runtime.Object, io.Writer) error
}

func (o *Output) printer() (printer, error) {
	if spec, ok := strings.CutPrefix(o.Format, "custom-columns="); ok {
		return newCustomColumns(spec)
	}
	p, err := o.flags.WithTypeSetter(client.Scheme()).ToPrinter()
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		return nil, UsageErrorf("unknown output format %q; use one of %s", o.Format, strings.Join(o.formats(), ", "))
	}
	if err != nil {
		return nil, UsageErrorf("%s", err)
	}
	return p, nil
}

// Print writes obj in the chosen format, which must be Given.
func (o *Output) Print(obj runtime.Object, w io.Writer) error {
	p, err := o.printer()
	if err != nil {
		return err
	}
	if err := p.PrintObj(obj, w); err != nil {
		return fmt.Errorf("print as %s: %w", o.Format, err)
	}
	return nil
}
