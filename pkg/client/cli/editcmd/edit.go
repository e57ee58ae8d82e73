// Package editcmd is `virtctl edit`: changes a machine in the user's editor, and says when the changes take effect.
package editcmd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/diff"
	"github.com/virtkit/virtkit/pkg/client/action/editor"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	"github.com/virtkit/virtkit/pkg/client/cli/diffcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/lifecyclecmd"
	"github.com/virtkit/virtkit/pkg/client/printable"
)

// Options of the command.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output
	DryRun  cli.DryRun
	// Machine is the argument that names it.
	Machine string
}

// NewCmdEdit makes `virtctl edit`.
func NewCmdEdit(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use:   "edit (VM | vmi/NAME)",
		Short: "Change a virtual machine in an editor, and see when that takes effect",
		Long: `Open a virtual machine in the editor that KUBE_EDITOR, VISUAL or EDITOR names, vi without, and
store what is changed there. Of each field it says when the change takes effect, as diff does: live, hotplug,
migration, restart or start. What the server does not take is opened again, with its reason above it; text that
was not stored is kept in a file. With --dry-run nothing is stored.`,
		Example: cli.Examples(f.Program, `
			virtctl edit web
			virtctl edit web --dry-run
			KUBE_EDITOR='code --wait' virtctl edit web -n prod`),
		Args:              cli.Args(1, 1, "the name of a VM"),
		ValidArgsFunction: completioncmd.VMs(f, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Machine = args[0]
			return Run(cmd.Context(), o)
		},
	}
	o.DryRun.AddFlag(cmd)
	o.Output.AddFlags(cmd)
	return cmd
}

// Run edits.
func Run(ctx context.Context, o *Options) error {
	if err := o.Output.Validate(); err != nil {
		return err
	}
	target, err := o.Factory.Target(o.Machine)
	if err != nil {
		return err
	}
	c, err := o.Factory.Client()
	if err != nil {
		return err
	}
	resource := client.VMs
	if target.Instance {
		resource = client.VMIs
	}
	object, err := c.Raw(ctx, resource, target.Namespace, target.Name)
	if err != nil {
		return err
	}
	text, err := editable(object)
	if err != nil {
		return err
	}
	s := &session{o: o, api: c, target: target, before: text, editor: o.editor()}
	return s.run(ctx)
}

// editor returns the editor, which gets the terminal even when Out is none.
func (o *Options) editor() editor.Editor {
	streams := o.Factory.IO
	e := editor.Editor{
		Command: editor.Command(o.Factory.Getenv), In: streams.In, Out: streams.RawOut(), ErrOut: streams.RawErr(),
	}
	if !streams.OutIsTTY {
		e.Out = streams.RawErr()
	}
	return e
}

// editable returns the part of an object that a user may change, and what names the object, as YAML.
func editable(object map[string]any) (string, error) {
	shown := runtime.DeepCopyJSON(object)
	delete(shown, "status")
	if metadata, ok := shown["metadata"].(map[string]any); ok {
		delete(metadata, "managedFields")
	}
	text, err := yaml.Marshal(shown)
	if err != nil {
		return "", fmt.Errorf("write the object as YAML: %w", err)
	}
	return string(text), nil
}

// session is one call of the command.
type session struct {
	o      *Options
	api    diff.EditAPI
	target cli.Target
	// before is the text as it was opened first.
	before string
	editor editor.Editor
}

// run opens the editor until its text can be stored, is as it was, or is left as it was refused.
func (s *session) run(ctx context.Context) error {
	text := s.before
	var refused error
	for {
		left, err := s.editor.Edit(ctx, s.heading(refused)+text)
		var kept *editor.KeptError
		switch {
		case errors.As(err, &kept):
			if ctx.Err() != nil { // of an interrupt nothing else is said
				fmt.Fprintf(s.o.Factory.IO.ErrOut, "note: your text is in %s\n", kept.Name)
			}
			return err
		case err != nil:
			return s.keep(text, err)
		}
		left = editor.Uncommented(left)
		switch {
		case refused != nil && left == text:
			return s.keep(text, fmt.Errorf("edit %s: %w", s.target.Name, refused))
		case left == s.before, strings.TrimSpace(left) == "":
			fmt.Fprintln(s.o.Factory.IO.ErrOut, "note: edit cancelled, no changes made")
			return nil
		}
		text = left
		refused, err = s.store(ctx, text)
		if refused == nil {
			return s.keep(text, err)
		}
	}
}

// heading returns the comments above the text.
func (s *session) heading(refused error) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s/%s: save and leave to store what you change; leave it as it is to change nothing.\n",
		s.target.Namespace, s.target.Name)
	if refused != nil {
		said := cli.Explain(refused, s.o.Factory.Connection())
		for line := range strings.Lines(said) {
			fmt.Fprintf(&b, "# Error: %s\n", printable.Line(strings.TrimSpace(line)))
		}
	}
	return b.String()
}

// keep writes a text that was not stored to a file, and says where. Without an error it was stored.
func (s *session) keep(text string, err error) error {
	if err == nil || text == s.before {
		return err
	}
	name, failed := editor.Keep(text)
	if failed != nil {
		return errors.Join(err, failed)
	}
	fmt.Fprintf(s.o.Factory.IO.ErrOut, "note: your text is in %s\n", name)
	return err
}

// store prints what the edit does, and stores it. refused is an error that another text can fix.
func (s *session) store(ctx context.Context, text string) (refused, err error) {
	edit, err := diff.ReadEdit(s.before, text)
	if err != nil {
		return err, nil
	}
	verdict, then, err := diff.Try(ctx, s.api, edit, s.o.DryRun != cli.DryRunClient)
	if err != nil {
		return fixable(err)
	}
	if len(verdict.Changes) == 0 {
		fmt.Fprintln(s.o.Factory.IO.ErrOut, "note: edit cancelled, no changes made")
		return nil, nil
	}
	if err := diffcmd.WriteChanges(s.o.Factory.IO.ErrOut, verdict.Changes); err != nil {
		return nil, err
	}
	var object runtime.Object = &unstructured.Unstructured{Object: then}
	if s.o.DryRun == cli.DryRunNone {
		if object, err = diff.Store(ctx, s.api, edit); err != nil {
			return fixable(err)
		}
		lifecyclecmd.Note(s.o.Factory, lifecycle.Edit, lifecycle.Target{
			Namespace: s.target.Namespace, Name: s.target.Name, Instance: s.target.Instance,
		})
	}
	return nil, s.print(object, verdict)
}

// fixable separates errors that another text fixes from others.
func fixable(err error) (refused, other error) {
	var changed *diff.ChangedError
	var unreachable *url.Error
	server := apierrors.APIStatus(nil)
	var answer *client.AnswerError
	switch {
	case errors.As(err, &answer): // no other text makes it one that can be read
		return nil, err
	case errors.As(err, &changed), errors.As(err, &unreachable), errors.Is(err, context.Canceled):
		return nil, err
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), !errors.As(err, &server):
		return err, nil
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "denied the request"):
		return err, nil // by an admission webhook or policy, not for want of a right
	}
	return nil, err
}

func (s *session) print(object runtime.Object, verdict *diff.Object) error {
	streams := s.o.Factory.IO
	if s.o.Output.Given() {
		return s.o.Output.Print(object, streams.Out)
	}
	kind := "virtualmachine"
	if s.target.Instance {
		kind = "virtualmachineinstance"
	}
	if _, err := fmt.Fprintf(streams.Out, "%s.kubevirt.io/%s edited%s\n", kind, s.target.Name,
		s.o.DryRun.Suffix()); err != nil {
		return err
	}
	if s.o.DryRun == cli.DryRunNone {
		diffcmd.HintRestart(s.o.Factory, s.target, verdict.Changes)
	}
	return nil
}
