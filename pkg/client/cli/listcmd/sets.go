package listcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/virtkit/virtkit/pkg/client/action/sets"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// completeSets reads the names of sets.
func (o *Options) completeSets(names []string) error {
	for _, name := range names {
		if name == "" {
			return cli.UsageErrorf("a name is empty")
		}
		if !slices.Contains(o.Selection.Names, name) {
			o.Selection.Names = append(o.Selection.Names, name)
		}
	}
	switch {
	case o.Watch:
		return cli.UsageErrorf("--watch follows machines; list them with -l and a label that the set gives them")
	case len(names) > 0 && (o.Selection.LabelSelector != "" || o.Selection.FieldSelector != ""):
		return cli.UsageErrorf("names cannot be given with a selector")
	}
	if o.SortBy != "" {
		var err error
		if o.setsSorter, err = sets.SortBy(o.SortBy); err != nil {
			return cli.UsageErrorf("--sort-by: %s", err)
		}
	}
	return o.Output.Validate()
}

// listSets prints sets, a row or an object each.
func (o *Options) listSets(ctx context.Context, c sets.API) error {
	found, err := sets.List(ctx, c, *o.Sets, o.Selection.Namespace, o.Selection.LabelSelector,
		o.Selection.FieldSelector)
	if err != nil {
		return err
	}
	var missing []error
	if len(o.Selection.Names) > 0 {
		all := found.Items
		found.Items = nil
		for _, name := range o.Selection.Names {
			before := len(found.Items)
			for _, set := range all {
				if set.GetName() == name {
					found.Items = append(found.Items, set)
				}
			}
			if len(found.Items) == before {
				missing = append(missing, o.notFound(o.Sets.Qualified(), name))
			}
		}
	}
	notFound := errors.Join(missing...)
	if o.setsSorter != nil {
		if err := o.setsSorter(found.Items); err != nil {
			return err
		}
	}
	switch {
	case o.Output.Given() && len(o.Selection.Names) == 1 && notFound != nil:
		return notFound
	case o.Output.Given() && o.alone():
		return o.Output.Print(&found.Items[0], o.Factory.IO.Out)
	case o.Output.Given():
		return errors.Join(o.Output.Print(found, o.Factory.IO.Out), notFound)
	case len(found.Items) == 0:
		if notFound == nil {
			o.noSets()
		}
		return notFound
	}
	return errors.Join(o.setTable(found.Items), notFound)
}

func (o *Options) noSets() {
	where := " in namespace " + o.Selection.Namespace
	if o.AllNamespaces {
		where = ""
	}
	fmt.Fprintf(o.Factory.IO.ErrOut, "No %s found%s.\n", o.Sets.Title, where)
}

// setTable prints a table with the columns of kubectl get, and a note of what keeps a set from what it is asked for.
func (o *Options) setTable(found []unstructured.Unstructured) error {
	w := cli.NewTable(o.Factory.IO.Out)
	line := func(namespace string, cells ...string) {
		if o.AllNamespaces {
			cells = append([]string{namespace}, cells...)
		}
		w.Row(cells...)
	}
	if !o.Output.NoHeaders {
		line("NAMESPACE", "NAME", "DESIRED", "CURRENT", "READY", "AGE", "NOTE")
	}
	for i := range found {
		row := sets.RowOf(&found[i])
		line(row.Namespace, row.Name, strconv.FormatInt(row.Desired, 10), strconv.FormatInt(row.Current, 10),
			strconv.FormatInt(row.Ready, 10),
			duration.HumanDuration(o.Factory.Now().Sub(row.Created)), row.Note)
	}
	return w.Flush()
}
