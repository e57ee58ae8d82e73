package templatecmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/client/action/vmtemplate"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

// ProcessOptions are the options of `virtctl template process`.
type ProcessOptions struct {
	Factory *cli.Factory
	Output  *cli.Output
	DryRun  cli.DryRun
	// Parameters are values by name, ParametersFile has such as an object of YAML or JSON.
	Parameters     map[string]string
	ParametersFile string
	// given are the parameters as the command line has them, NAME=VALUE.
	given []string
	// PrintParameters prints the template's parameters alone, Create makes the VM in the cluster.
	PrintParameters, Create bool

	source
}

// NewCmdProcess makes the command.
func NewCmdProcess(f *cli.Factory) *cobra.Command {
	o := &ProcessOptions{Factory: f, Output: cli.NewOutput()}
	o.Output.Format = "yaml"
	cmd := &cobra.Command{
		Use:   "process (NAME | --file FILE)",
		Short: "Make a virtual machine of a template",
		Long: `Print the VirtualMachine that a VirtualMachineTemplate makes with the values given, or with
--create make it in the cluster. ${NAME} in the template is a parameter's value within a string, ${{NAME}} as a
whole string a value of another type. A parameter without a value has that of the template, or a random one of
the template's expression.

The template is processed here, also one of the cluster. Its message and parameters that it does not use are said on
stderr.`,
		Example: cli.Examples(f.Program, `
			virtctl template process -f fedora.yaml --print-params
			virtctl template process -f fedora.yaml -p NAME=web -p MEMORY=4Gi | kubectl apply -f -
			virtctl template process fedora --params-file web.yaml --create`),
		Args: cli.Args(0, 1, "the name of a template, or none with --file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.validate(cmd, args); err != nil {
				return err
			}
			return Process(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	o.addFlags(cmd, "a VirtualMachineTemplate", completioncmd.Templates(f))
	flags.StringArrayVarP(&o.given, "param", "p", nil,
		"Value of a parameter, `NAME=VALUE`, taken as it is (can be repeated)")
	flags.StringVar(&o.ParametersFile, "params-file", "", "`FILE` with values of parameters, an object of YAML or JSON")
	flags.BoolVar(&o.PrintParameters, "print-params", false,
		"Print the parameters of the template alone, as YAML or JSON")
	flags.BoolVar(&o.Create, "create", false, "Create the VM in the cluster instead of printing it")
	flags.Bool("local", false, "Without effect: templates are always processed here")
	o.DryRun.AddFlag(cmd)
	o.Output.AddFlags(cmd)
	return cmd
}

func (o *ProcessOptions) validate(cmd *cobra.Command, args []string) error {
	if err := o.take(args); err != nil {
		return err
	}
	var err error
	if o.Parameters, err = cli.Pairs("param", o.given); err != nil {
		return err
	}
	if o.DryRun == cli.DryRunServer {
		o.Create = true // asking the server is what creating does
	}
	switch {
	case len(o.Parameters) > 0 && o.ParametersFile != "":
		return cli.UsageErrorf("--param and --params-file cannot be given together")
	case o.PrintParameters && o.Create:
		return cli.UsageErrorf("--print-params and --create cannot be given together")
	case o.PrintParameters && o.Output.Format != "yaml" && o.Output.Format != "json":
		return cli.UsageErrorf("--output: --print-params prints yaml or json")
	}
	if o.Create && !cmd.Flags().Changed("output") {
		o.Output.Format = ""
	}
	return o.Output.Validate()
}

// Process prints or creates what a template makes.
func Process(ctx context.Context, o *ProcessOptions) error {
	text, err := o.read(ctx, o.Factory, vmtemplate.Get)
	if err != nil {
		return err
	}
	template, err := vmtemplate.Parse(text)
	if err != nil {
		return fmt.Errorf("template %s: %w", o.where(), err)
	}
	if o.PrintParameters {
		return o.printParameters(template.Parameters)
	}
	if o.ParametersFile != "" {
		if o.Parameters, err = readParameters(o.Factory, o.ParametersFile); err != nil {
			return err
		}
	}
	done, err := template.Process(o.Parameters, vmtemplate.Random())
	if wrong := (*vmtemplate.ParameterError)(nil); errors.As(err, &wrong) {
		return cli.UsageErrorf("template %s: %s", o.where(), err)
	}
	if err != nil {
		return fmt.Errorf("template %s: %w", o.where(), err)
	}
	for _, name := range done.Unused {
		fmt.Fprintf(o.Factory.IO.ErrOut, "warning: the template does not use its parameter %s\n", name)
	}
	if err := o.print(ctx, done); err != nil {
		return err
	}
	if done.Message != "" {
		fmt.Fprintln(o.Factory.IO.ErrOut, done.Message)
	}
	return nil
}

// print prints the VM, or creates it and says so.
func (o *ProcessOptions) print(ctx context.Context, done *vmtemplate.Processed) error {
	machine := done.Machine
	if !o.Create || o.DryRun == cli.DryRunClient {
		return o.Output.Manifest(machine, o.Factory.IO.Out)
	}
	c, err := o.Factory.Client()
	if err != nil {
		return err
	}
	ns, err := o.Factory.NamespaceOf(machine)
	if err != nil {
		return err
	}
	created, err := c.CreateObject(ctx, "/apis/kubevirt.io/v1", ns, "virtualmachines", machine,
		o.DryRun == cli.DryRunServer)
	if err != nil {
		return o.refused(fmt.Errorf("create VM %s/%s: %w", ns, machine.GetName(), err))
	}
	return o.Output.Created(o.DryRun, "virtualmachine.kubevirt.io", created, o.Factory.IO.Out)
}

// refused returns an error that names the template's missing fields, where the server says which fields of the VM are
// missing; any other err stays as it is.
func (o *ProcessOptions) refused(err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) || status.Status().Details == nil {
		return err
	}
	var missing []string
	for _, cause := range status.Status().Details.Causes {
		switch {
		case cause.Type == metav1.CauseTypeFieldValueRequired:
			missing = append(missing, "spec.virtualMachine."+cause.Field)
		case cause.Field != "<nil>": // is about rules that were not looked at for what is missing
			return err
		}
	}
	if len(missing) == 0 {
		return err
	}
	is, remedy := "is", "the template must give it a value"
	switch last := missing[0]; {
	case len(missing) > 1:
		is, remedy = "are", "the template must give them values"
	case strings.HasSuffix(last, ".domain.devices"):
		remedy = "write `devices: {}` there when the VM is to have what every VM has"
	}
	return &refusedError{fmt.Sprintf("template %s: %s %s missing; %s", o.where(), strings.Join(missing, ", "), is,
		remedy), err}
}

// refusedError is a server's refusal in better words; what it is stays.
type refusedError struct {
	text string
	err  error
}

func (e *refusedError) Error() string { return e.text }
func (e *refusedError) Unwrap() error { return e.err }

// printParameters prints a list, as KubeVirt's virtctl does: it is no object, which the printers are for.
func (o *ProcessOptions) printParameters(parameters []vmtemplate.Parameter) error {
	if parameters == nil {
		parameters = []vmtemplate.Parameter{}
	}
	text, err := yaml.Marshal(parameters)
	if o.Output.Format == "json" {
		text, err = json.MarshalIndent(parameters, "", "    ")
		text = append(text, '\n')
	}
	if err != nil {
		return fmt.Errorf("print the parameters: %w", err)
	}
	_, err = o.Factory.IO.Out.Write(text)
	return err
}

// readParameters reads a file of values, which become texts: numbers and booleans need no quotes.
func readParameters(f *cli.Factory, path string) (map[string]string, error) {
	data, err := cli.ReadFile(f.IO.In, "--params-file", path, "")
	if err != nil {
		return nil, err
	}
	values := map[string]json.RawMessage{}
	if err := yaml.Unmarshal(data, &values); err != nil {
		return nil, cli.UsageErrorf("--params-file: %s is no object of values: %s", path, err)
	}
	out := map[string]string{}
	for name, value := range values {
		var text string
		if err := json.Unmarshal(value, &text); err != nil {
			text = string(value)
		}
		out[name] = text
	}
	return out, nil
}
