package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/virtkit/virtkit/pkg/client/action/client"
)

// Creation is the frame of a command that creates an object which a controller then carries out, such as a snapshot:
// the flags -o, --dry-run, --wait and --timeout, and by a Kind what they mean.
type Creation struct {
	Factory *Factory
	Output  *Output
	DryRun  DryRun

	Waiting
}

// NewCreation returns the frame without its flags.
func NewCreation(f *Factory) Creation { return Creation{Factory: f, Output: NewOutput()} }

// AddFlags registers the flags. until says what --wait waits for.
func (o *Creation) AddFlags(cmd *cobra.Command, until string, limit time.Duration) {
	o.Waiting.AddFlags(cmd, until, limit)
	o.DryRun.AddFlag(cmd)
	o.Output.AddFlags(cmd)
}

// Validate refuses flags that contradict each other, and an unknown format.
func (o *Creation) Validate() error {
	if err := o.CheckWait(o.DryRun); err != nil {
		return err
	}
	return o.Output.Validate()
}

// Object is a pointer to an object of the API.
type Object interface {
	comparable
	runtime.Object
	metav1.Object
}

// Kind is a kind of objects that are created and waited for.
type Kind[T Object] struct {
	// Name is what messages and `virtctl why` call the kind, Resource is KIND.GROUP.
	Name, Resource string
	// Create sends an object to the server; with dryRun nothing changes there.
	Create func(ctx context.Context, c *client.Client, object T, dryRun bool) (T, error)
	// Wait waits until an object is carried out, and reports each of its stages. With an error it returns the object as
	// it was seen last, or nil.
	Wait func(ctx context.Context, c *client.Client, namespace, name string, report func(stage string)) (T, error)
}

// Send creates object, and returns it as the server has it. A client's dry run sends nothing. A user who interrupts it
// reads that the object may be there.
func (k Kind[T]) Send(ctx context.Context, c *client.Client, o *Creation, object T) (T, error) {
	if o.DryRun == DryRunClient {
		return object, nil
	}
	made, err := k.Create(ctx, c, object, o.DryRun == DryRunServer)
	if err != nil && o.DryRun == DryRunNone {
		o.Factory.IO.Interrupted(err, "%s %s/%s may have been created", k.Name, object.GetNamespace(),
			object.GetName())
	}
	return made, err
}

// Await waits with --wait until an object that was sent is carried out, and returns it as it is then, also with an
// error. A user who interrupts it reads that the object goes on, and which command says how far it is.
func (k Kind[T]) Await(ctx context.Context, c *client.Client, o *Creation, sent T) (T, error) {
	if !o.Wait {
		return sent, nil
	}
	var last T
	err := o.Stages(ctx, o.Factory.IO, k.Name+" "+sent.GetName(),
		func(ctx context.Context, report func(string)) (err error) {
			last, err = k.Wait(ctx, c, sent.GetNamespace(), sent.GetName(), report)
			return err
		})
	if err != nil {
		o.Factory.IO.Interrupted(err, "%s %s was created, and goes on; "+
			"`%s why %[1]s/%[2]s -n %[4]s` says how far it is",
			k.Name, sent.GetName(), o.Factory.Program, sent.GetNamespace())
	}
	if none := *new(T); last == none {
		return sent, err
	}
	last.GetObjectKind().SetGroupVersionKind(sent.GetObjectKind().GroupVersionKind()) // a watch leaves it out
	return last, err
}

// Follow prints that an object was sent, waits with Await, and prints the object or, after a wait, what reached returns
// of it, if anything.
func (k Kind[T]) Follow(ctx context.Context, c *client.Client, o *Creation, sent T, reached func(T) string) error {
	if err := k.Said(o, sent); err != nil {
		return err
	}
	last, err := k.Await(ctx, c, o, sent)
	if err != nil {
		return err
	}
	if o.Output.Given() {
		return o.Output.Print(last, o.Factory.IO.Out)
	}
	if text := reached(last); o.Wait && text != "" {
		_, err = fmt.Fprintln(o.Factory.IO.Out, text)
	}
	return err
}

// Said prints that an object was created, unless objects are printed.
func (k Kind[T]) Said(o *Creation, sent T) error {
	if o.Output.Given() {
		return nil
	}
	return o.DryRun.Created(o.Factory.IO.Out, k.Resource, sent.GetName())
}

// Manifest prints an object that a command has made and not sent: as YAML unless another format is Given.
func (o *Output) Manifest(object runtime.Object, out io.Writer) error {
	if !o.Given() {
		o.Format = "yaml"
	}
	return o.Print(object, out)
}

// Created prints an object that a command has sent, in the format that is Given, or else that it, a KIND.GROUP, was
// created.
func (o *Output) Created(d DryRun, kind string, object interface {
	runtime.Object
	metav1.Object
}, out io.Writer,
) error {
	if o.Given() {
		return o.Print(object, out)
	}
	return d.Created(out, kind, object.GetName())
}
