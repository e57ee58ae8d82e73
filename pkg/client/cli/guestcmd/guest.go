// Package guestcmd is `virtctl guestosinfo`, `userlist` and `fslist`: what a guest says of itself through its agent.
package guestcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

// Options of the three verbs.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output
	Name    string

	ask func(ctx context.Context, c *client.Client, namespace, name string) (runtime.Object, error)
}

// NewCmdGuestOSInfo makes `virtctl guestosinfo`.
func NewCmdGuestOSInfo(f *cli.Factory) *cobra.Command {
	o := &Options{
		Factory: f,
		ask: func(ctx context.Context, c *client.Client, namespace, name string) (runtime.Object, error) {
			return c.GuestAgentInfo(ctx, namespace, name)
		},
	}
	return o.command("guestosinfo", "Show what a virtual machine's guest agent knows of its system", `
		virtctl guestosinfo demo
		virtctl guestosinfo demo -o jsonpath={.os.prettyName}`)
}

// NewCmdUserList makes `virtctl userlist`.
func NewCmdUserList(f *cli.Factory) *cobra.Command {
	o := &Options{
		Factory: f,
		ask: func(ctx context.Context, c *client.Client, namespace, name string) (runtime.Object, error) {
			return c.GuestUsers(ctx, namespace, name)
		},
	}
	return o.command("userlist", "Show who is logged in to a virtual machine", `
		virtctl userlist demo
		virtctl userlist demo -o jsonpath='{.items[*].userName}'`)
}

// NewCmdFSList makes `virtctl fslist`.
func NewCmdFSList(f *cli.Factory) *cobra.Command {
	o := &Options{
		Factory: f,
		ask: func(ctx context.Context, c *client.Client, namespace, name string) (runtime.Object, error) {
			return c.GuestFileSystems(ctx, namespace, name)
		},
	}
	return o.command("fslist", "Show the file systems of a virtual machine", `
		virtctl fslist demo
		virtctl fslist demo -o yaml`)
}

func (o *Options) command(verb, short, examples string) *cobra.Command {
	o.Output = cli.NewOutput()
	cmd := &cobra.Command{
		Use:   verb + " NAME",
		Short: short,
		Long: short + `, as JSON unless -o says otherwise.

The guest needs qemu-guest-agent: "virtctl wait NAME --for=agent" waits for it.`,
		Example:           cli.Examples(o.Factory.Program, examples),
		Args:              cli.Args(1, 1, "the name of one VM"),
		ValidArgsFunction: completioncmd.VMIs(o.Factory, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name = args[0]
			if err := o.Output.Validate(); err != nil {
				return err
			}
			return Run(cmd.Context(), o)
		},
	}
	o.Output.AddFlags(cmd)
	return cmd
}

// Run asks and prints.
func Run(ctx context.Context, o *Options) error {
	c, target, err := o.Factory.Machine(o.Name)
	if err != nil {
		return err
	}
	found, err := o.ask(ctx, c, target.Namespace, target.Name)
	if err != nil {
		return o.Factory.NotRunning(ctx, c, target, err)
	}
	switch {
	case o.Output.Format == "name":
		// What was found has no name of its own.
		return o.Output.Print(&metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{
				APIVersion: v1.GroupVersion.String(),
				Kind:       v1.VirtualMachineInstanceGroupVersionKind.Kind,
			},
			ObjectMeta: metav1.ObjectMeta{Name: target.Name},
		}, o.Factory.IO.Out)
	case o.Output.Given():
		return o.Output.Print(found, o.Factory.IO.Out)
	}
	// KubeVirt's layout.
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(found); err != nil {
		return fmt.Errorf("print as json: %w", err)
	}
	_, err = fmt.Fprint(o.Factory.IO.Out, text.String())
	return err
}
