// Package templatecmd is `virtctl template`: VirtualMachines of templates, as KubeVirt's virtctl makes them.
package templatecmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action/vmtemplate"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

// NewCmdTemplate makes `virtctl template`.
func NewCmdTemplate(f *cli.Factory) *cobra.Command {
	cmd := cli.Group(&cobra.Command{
		Use:   "template",
		Short: "Make virtual machines of templates",
		Long: `Make virtual machines of VirtualMachineTemplates (template.kubevirt.io), which leave some values open, and
VirtualMachineTemplates of OpenShift's Templates. Files need nothing in the cluster; templates that are in the cluster
are those of KubeVirt's add-on virt-template.`,
	})
	cmd.AddCommand(NewCmdProcess(f), NewCmdConvert(f), NewCmdCreate(f))
	return cmd
}

// source is where a template is: in the cluster by its name, or in a file.
type source struct {
	name, file string
}

// addFlags registers the flags; what is the kind of template, names completes its names.
func (s *source) addFlags(cmd *cobra.Command, what string, names cobra.CompletionFunc) {
	cmd.ValidArgsFunction = names
	cmd.Flags().StringVar(&s.name, "name", "", "`NAME` of "+what+" of the cluster; also the argument")
	cmd.Flags().StringVarP(&s.file, "file", "f", "", "`FILE` with "+what+", YAML or JSON; - is stdin")
	completioncmd.Flag(cmd, "name", names)
}

// take reads the argument and checks that one template is named.
func (s *source) take(args []string) error {
	if len(args) > 0 {
		if s.name != "" {
			return cli.UsageErrorf("the name is given twice, as an argument and with --name")
		}
		s.name = args[0]
	}
	if (s.name == "") == (s.file == "") {
		return cli.UsageErrorf("exactly one of a name and --file must be given")
	}
	return nil
}

// read returns the template's text: that of the file, or what get has in the cluster.
func (s *source) read(
	ctx context.Context, f *cli.Factory,
	get func(ctx context.Context, api vmtemplate.API, namespace, name string) ([]byte, error),
) ([]byte, error) {
	if s.file != "" {
		return cli.ReadFile(f.IO.In, "--file", s.file, "")
	}
	c, ns, err := f.Scope()
	if err != nil {
		return nil, err
	}
	return get(ctx, c, ns, s.name)
}

// where returns which template an error is about.
func (s *source) where() string {
	if s.file != "" {
		return s.file
	}
	return s.name
}
