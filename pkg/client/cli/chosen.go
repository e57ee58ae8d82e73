package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
)

// Chosen is how a user names the machines of a command that changes nothing: by their names, or with -l.
type Chosen struct {
	Names    []string
	Selector string
}

// AddFlag registers -l.
func (o *Chosen) AddFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.Selector, "selector", "l", "", "Label `SELECTOR`, such as app=web, of the VMs to look at")
}

// Validate holds -l against the names. needed is whether one of both must be given.
func (o *Chosen) Validate(cmd *cobra.Command, needed bool) error {
	switch {
	case len(o.Names) > 0 && o.Selector != "":
		return UsageErrorf("give names, or -l, not both")
	case needed && len(o.Names) == 0 && o.Selector == "":
		return UsageErrorf("%s needs the name of a VM, or -l SELECTOR", cmd.CommandPath())
	}
	return CheckSelector(o.Selector)
}

// Several reports whether the output names machines: more than one was named, or a selector chose them.
func (o *Chosen) Several() bool { return len(o.Names) > 1 || o.Selector != "" }

// Targets returns the client and the machines, those of -l as they are now. That there are none is an
// action.ErrNotFound.
func (o *Chosen) Targets(ctx context.Context, f *Factory) (*client.Client, []Target, error) {
	ns, err := f.Namespace()
	if err != nil {
		return nil, nil, err
	}
	targets, err := ParseTargets(o.Names, ns)
	if err != nil {
		return nil, nil, err
	}
	c, err := f.Client()
	if err != nil {
		return nil, nil, err
	}
	if o.Selector == "" {
		return c, targets, nil
	}
	if targets, err = Selected(ctx, c, ns, o.Selector); err == nil && len(targets) == 0 {
		err = fmt.Errorf("VMs with labels %s %w in namespace %q", o.Selector, action.ErrNotFound, ns)
	}
	return c, targets, err
}

// Selected returns the VMs of a namespace that a selector matches now; "" matches all.
func Selected(ctx context.Context, c *client.Client, namespace, selector string) ([]Target, error) {
	list, err := c.VMList(ctx, namespace, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("list VMs: %w", err)
	}
	var out []Target
	for i := range list.Items {
		out = append(out, Target{Namespace: namespace, Name: list.Items[i].Name})
	}
	return out, nil
}
